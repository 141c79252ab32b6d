"""The agent of a Harbor task on the cluster: it asks the policy once, and writes the answer down.

It says what the image has of ours, by which a test knows the image. It then waits a moment, so that
an episode can be ended in its middle.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

SECONDS = 8

sys.stdout.write(" ".join(os.listdir("/opt/app")))
task = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
request = urllib.request.Request(
    f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
    json.dumps({"model": "policy", "messages": task["messages"]}).encode(),
    {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
)
with urllib.request.urlopen(request, timeout=600) as answer:
    message = json.load(answer)["choices"][0]["message"]
Path("answer.txt").write_text(message["content"])
time.sleep(SECONDS)
