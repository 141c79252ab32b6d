"""Asks the policy as often as it is told and posts a reward, unless something stops it before.

Without any library. Arguments: a folder, how often it asks, and events
``<attempt>:<number>:<what>``. On that attempt, when it has ``number`` answers, it ``waits`` (for
ever, behind a file ``<attempt>-<member>-<number>`` in the folder) or ``dies``. In the file
``<attempt>-<member>`` it says its process id as it begins.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import urllib.request
from typing import Any

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
FOLDER, TURNS, EVENTS = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]


def post(url: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def mark(name: str) -> None:
    fresh = FOLDER / f"{name}.new"
    fresh.write_text(str(os.getpid()))
    fresh.rename(FOLDER / name)


def happens(number: int) -> None:
    if f"{task['attempt']}:{number}:dies" in EVENTS:
        os.kill(os.getpid(), signal.SIGKILL)
    if f"{task['attempt']}:{number}:waits" in EVENTS:
        mark(f"{task['attempt']}-{task['member']}-{number}")
        signal.pause()


task = json.loads(pathlib.Path(os.environ["RL_TASK_FILE"]).read_text())
mark(f"{task['attempt']}-{task['member']}")
messages = task["messages"]
for turn in range(TURNS):
    happens(turn)
    answer = post(f"{URL}/chat/completions", model="policy", messages=messages)
    messages += [answer["choices"][0]["message"], {"role": "user", "content": f"and {turn}?"}]
happens(TURNS)
post(os.environ["RL_RESULT_URL"], reward=0.5, metrics={"turns": TURNS})
