"""Makes the actions of an earlier attempt again, so that its turns can be continued."""

from __future__ import annotations

import math

from rl_contracts.documents.rollout import Rollout, Turn
from rl_sampler.agents.trace import continues_prompt
from rl_sampler.environments.actions import parsed
from rl_sampler.environments.play import Play
from rl_sampler.environments.protocol import ActionRefusedError, Seen


async def replay(play: Play, first: Seen, saved: Rollout) -> str:
    """Make the actions of saved turns, and take the turns over where all is as it was.

    Args:
        play: an episode that has just begun.
        first: its first observation.
        saved: by an earlier attempt.

    Returns:
        Why this is another episode; empty where the turns were taken over.

    Raises:
        EnvironmentDownError: the environment failed.
    """
    member = play.member
    messages = play.opening(play.text_of(first))
    if not continues_prompt(saved, member.chat.opening(messages)):
        return "the first observation is another one"
    for number, turn in enumerate(saved.turns, start=1):
        if play.done or not await _is_repeated(play, turn):
            return f"the environment answered turn {number} otherwise"
    if play.done:
        return "the environment ended it"
    member.messages = messages
    member.resume(saved)
    return ""


async def _is_repeated(play: Play, turn: Turn) -> bool:
    """Make the actions of a turn; whether they are answered as before."""
    rewards: list[float] = []
    for call in turn.calls:
        if call.outcome == "refused":
            continue  # no step was made
        try:
            seen = await play.step(play.action(call.tool, parsed(call.arguments or "{}")))
        except ActionRefusedError:
            return False
        if play.answer(seen) != (call.outcome, call.result):
            return False
        rewards += [] if seen.reward is None else [seen.reward]
    return turn.reward == (math.fsum(rewards) if rewards else None)
