"""Asks the policy once, says so by a file, and posts a reward when another file is there.

Without any library. Arguments: the folder of both files.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


def post(url: str, **body: Any) -> None:
    headers = {"Authorization": f"Bearer {os.environ['RL_API_KEY']}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=120).close()


task = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
post(url, model="policy", messages=task["messages"])
post(os.environ["RL_RESULT_URL"], reward=1.0)  # also where it is killed after it
(FOLDER / f"{task['attempt']}-{task['member']}").touch()
while not (FOLDER / "go").exists():
    time.sleep(0.02)
post(os.environ["RL_RESULT_URL"], reward=0.5)
