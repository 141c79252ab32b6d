"""Talks, says so in a file ``<attempt>-<member>``, waits for the file ``go``, and talks on.

On its first attempt member 0 ends itself where the arguments say ``dies``.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
import urllib.request
from typing import Any

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
FOLDER = pathlib.Path(sys.argv[1])


def post(url: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = post(f"{URL}/chat/completions", model="policy", messages=messages)
    message: dict[str, Any] = body["choices"][0]["message"]
    return message


task = json.loads(pathlib.Path(os.environ["RL_TASK_FILE"]).read_text())
reply = chat(task["messages"])
if "dies" in sys.argv and (task["attempt"], task["member"]) == (1, 0):
    os.kill(os.getpid(), signal.SIGKILL)
mark = FOLDER / f"{task['attempt']}-{task['member']}"
mark.with_suffix(".new").write_text(json.dumps({"pid": os.getpid(), "key": KEY, "url": URL}))
mark.with_suffix(".new").rename(mark)
ends = time.monotonic() + 300.0  # a wait that long is a hang
while not (FOLDER / "go").exists():
    assert time.monotonic() < ends, f"{FOLDER / 'go'} never came"
    time.sleep(0.05)
chat([*task["messages"], reply, {"role": "user", "content": "and?"}])
post(os.environ["RL_RESULT_URL"], reward=0.5)
