"""Agent ``Environment``: the policy's responses are actions in an OpenEnv environment."""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass
from typing import Any

from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.task import Task
from rl_sampler.agents.member import Member
from rl_sampler.environments.play import Play
from rl_sampler.environments.replay import replay
from rl_sampler.environments.server import EnvironmentServer
from rl_sampler.environments.session import Session

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentAgent:
    """Plays each member's episode in a session of its own."""

    server: EnvironmentServer

    async def __call__(self, member: Member) -> StopReason:
        """Act out an episode that has no response yet; returns why it ended.

        Raises:
            EnvironmentDownError: the environment failed, took too long, or cannot be reached.
            UserCodeError: the manifest's action does not fit the environment.
            UnusableMemberError: the environment was done before the first action.
            PromptError: task and first observation leave no room.
            EngineError, EpisodeEndedError: as ``Policy.sample``.
        """
        claim, section = member.policy.claim, self.server.section
        arguments = reset_arguments(claim.task, member.number, in_any_attempt=section.replayable)
        async with self.server.session() as session:
            first = await claim.run(self.server.begin(session, arguments))
            play = self._play(member, session)
            if member.saved is not None and (why := await replay(play, first, member.saved)):
                logger.warning(
                    "member %d of %s begins again: %s", member.number, claim.task.id, why
                )
                first = await claim.run(self.server.begin_again(session, arguments))
                play = self._play(member, session)
            try:
                reason = await play.run(first)
                await play.read_state()
            finally:
                member.environment = play.outcome
                member.earned = math.fsum(play.rewards)
            return reason

    def _play(self, member: Member, session: Session) -> Play:
        return Play(
            member=member,
            session=session,
            section=self.server.section,
            has_tools=self.server.has_tools,
        )


def reset_arguments(task: Task, member: int, *, in_any_attempt: bool = False) -> dict[str, Any]:
    """Arguments of an episode's reset: the same for all members of a group, but for the id.

    The record's fields, and unless it has one a seed in [0, 2³¹) that depends on the record alone,
    so that a group's rewards are those of one starting state.

    Args:
        task: the task.
        member: number of the member.
        in_any_attempt: the id is the same in each attempt, so that one can replay another's.
    """
    attempt = "" if in_any_attempt else f"-{task.attempt}"
    digest = hashlib.sha256(f"{task.dataset}\0{task.example}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big") >> 1
    return {
        "seed": seed,
        **task.record_fields,
        "episode_id": f"{task.id}{attempt}-{member}"[-255:],
    }
