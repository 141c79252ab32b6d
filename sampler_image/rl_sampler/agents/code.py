"""The policy writes programs, sees what they print, and goes on until it has an answer.

Wang et al., Executable Code Actions Elicit Better LLM Agents (2402.01030), §2: an action is a
program, an observation is what it prints. Here each program runs by itself, from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.agents.turns import Place, in_turns
from rl_sampler.sandbox.programs import last_block
from rl_sampler.sandbox.tool import PYTHON
from rl_sampler.tools.formats import WantedCall
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
    """Act out an episode whose first response is there; return why it ended."""
    return await in_turns(member, _reply)


def instructions(tools: Sequence[Tool]) -> str:
    """How the policy is told what it can do; ``tools`` is the sandbox's one."""
    return INSTRUCTIONS


async def _reply(member: Member, turn: Turn, place: Place) -> Sequence[Mapping[str, Any]] | None:
    program = last_block(turn.text)
    if program is None:
        return [{"role": "user", "content": TOO_EARLY}] if place.early else None
    if place.last:
        return []
    (made,) = await member.make([WantedCall(tool=PYTHON, arguments=json.dumps({"code": program}))])
    return [member.chat.said("user", f"Output:\n{made.result}")]
