"""Asks the policy once and posts a reward; in the first attempt member 1 asks too much.

Argument: ``prompt`` for a first request that is too long, ``log`` for a posted result that is.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any


def post(url: str, **body: Any) -> None:
    headers = {"Authorization": f"Bearer {os.environ['RL_API_KEY']}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=120).close()


task = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
messages, what = task["messages"], sys.argv[1]
if (task["attempt"], task["member"]) == (1, 1):
    if what == "prompt":
        messages = [{"role": "user", "content": "9" * 5000}]
    else:
        post(os.environ["RL_RESULT_URL"], reward=0.5, log="x" * 100_000)
post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", model="policy", messages=messages)
post(os.environ["RL_RESULT_URL"], reward=0.5)
