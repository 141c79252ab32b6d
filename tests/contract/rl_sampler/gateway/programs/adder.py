"""Solves a Harbor task in its working directory, after it has asked the policy once.

Argument: a folder, where it leaves a mark when it was answered, and waits for the file ``go``. Only
the first member writes a solution.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

task = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
body = json.dumps({"model": "policy", "messages": task["messages"]}).encode()
url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=120).close()
folder = Path(sys.argv[1])
(folder / f"{task['attempt']}-{task['member']}").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
if task["member"] == 0:
    Path("solution").write_text(os.environ["ANSWER"])
