"""An agent of the OpenAI Agents SDK that multiplies with a tool. Nothing in it is about training.

The sampler starts it once for each episode: the SDK reads ``OPENAI_BASE_URL`` and
``OPENAI_API_KEY``, the task is in the file that ``RL_TASK_FILE`` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


def main() -> None:
    """Answer the task's question."""
    set_tracing_disabled(True)  # traces would be sent to OpenAI
    task = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
    system = [each["content"] for each in task["messages"] if each["role"] == "system"]
    agent = Agent(
        name="calculator",
        instructions="\n".join(system) or None,
        model="policy",
        tools=[multiply],
    )
    question = task["messages"][-1]["content"]
    print(Runner.run_sync(agent, question, max_turns=4).final_output)


main()
