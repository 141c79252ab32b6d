"""Agent ``Code``: the policy writes programs and sees their output until it has an answer.

Wang et al., Executable Code Actions Elicit Better LLM Agents (2402.01030), §2: an action is a
program, an observation is its output. Here each program runs in a new process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.agents.turns import Messages, TurnPosition, run_turns
from rl_sampler.sandbox.tool import OPENING, PYTHON, last_block
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.thoughts import behind_thoughts
from rl_sampler.tools.tool import Tool

INSTRUCTIONS = """\
You can run Python. Write a program as
```python
print(6 * 7)
```
and stop there. You are then told what it printed. Each program runs by itself: nothing of an \
earlier one is there. It has no network, and can read files but not write them. When you know \
enough, answer without such a block."""


async def code(member: Member) -> StopReason:
    """Run an episode whose first response was sampled already; returns why it ended."""
    return await run_turns(member, _reply)


def instructions(tools: Sequence[Tool]) -> str:
    """Text that explains the agent to the policy; ``tools`` holds the sandbox's tool alone."""
    return INSTRUCTIONS


async def _reply(member: Member, turn: Turn, position: TurnPosition) -> Messages | None:
    opened = member.opens_thinking(turn)
    program = last_block(behind_thoughts(turn.text, begins=OPENING, opened=opened))
    if program is None:
        return [{"role": "user", "content": TOO_EARLY}] if position.early else None
    if position.last:
        return []
    (call,) = await member.make([WantedCall(tool=PYTHON, arguments=json.dumps({"code": program}))])
    return [member.chat.outside_message("user", f"Output:\n{call.result}")]
