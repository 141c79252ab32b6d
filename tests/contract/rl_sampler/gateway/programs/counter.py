"""A program without any library: asks as often as it is told, and posts how often it was."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import urllib.request
from typing import Any

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]


def post(url: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


messages = json.loads(pathlib.Path(os.environ["RL_TASK_FILE"]).read_text())["messages"]
turns = int(sys.argv[1])
for turn in range(turns):
    answer = post(f"{URL}/chat/completions", model="policy", messages=messages)
    messages += [answer["choices"][0]["message"], {"role": "user", "content": f"and {turn}?"}]
post(os.environ["RL_RESULT_URL"], reward=0.5, metrics={"turns": turns})
