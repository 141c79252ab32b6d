"""A program without any library: talks twice, the second time as a stream, and branches once."""

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
    return urllib.request.urlopen(request, timeout=120)


def chat(messages: list[dict[str, Any]]) -> dict[str, Any]:
    with post(f"{URL}/chat/completions", model="policy", messages=messages) as answer:
        message: dict[str, Any] = json.loads(answer.read())["choices"][0]["message"]
        return message


def stream(messages: list[dict[str, Any]]) -> str:
    content = ""
    body = {"model": "policy", "messages": messages, "stream": True}
    with post(f"{URL}/chat/completions", **body) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    content += choice["delta"].get("content") or ""
    return content


task = json.loads(pathlib.Path(os.environ["RL_TASK_FILE"]).read_text())
messages = [*task["messages"], chat(task["messages"]), {"role": "user", "content": "and?"}]
stream(messages)
stream([{"role": "user", "content": "something else"}])
reward = {"reward": 0.25 if task["answer"] == "2" else 0.75, "metrics": {"turns": 3}}
with post(os.environ["RL_RESULT_URL"], **reward):
    sys.stdout.write("has finished\n")
if "fail" in sys.argv and task["member"] == 0:
    sys.exit(3)
