"""An agent that solves a task with a shell, by the standard library alone: any image can run it.

It asks the policy by OpenAI's API with one tool, ``shell``, runs what the policy calls, and ends
with its first answer without a call.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

SECONDS, CHARACTERS, TURNS = 60, 4000, 20
"""Of a command, of its output that the policy is shown, of an episode."""
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command in a shell; returns its output and its exit code.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The policy's next message."""
    body = json.dumps({"model": "policy", "messages": messages, "tools": [SHELL]}).encode()
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        body,
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
    return message


def run(arguments: str) -> str:
    """What the policy is shown of a call: output and exit code, or what was wrong with it."""
    try:
        command = json.loads(arguments)["command"]
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except (ValueError, KeyError, TypeError) as error:
        return f"The call cannot be read: {error}"
    except subprocess.TimeoutExpired:
        return f"It took more than {SECONDS} s."
    output = done.stdout.decode(errors="replace")[-CHARACTERS:]
    return f"{output}\n(exit code {done.returncode})"


def main() -> None:
    """Solve the task."""
    task = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
    messages: list[dict[str, Any]] = task["messages"]
    for _ in range(TURNS):
        message = ask(messages)
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            return
        for call in calls:
            result = run(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


if __name__ == "__main__":
    main()
