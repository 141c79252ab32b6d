"""A group's members, acted out and scored: each becomes a rollout, or an error that is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.documents.rollout import Rollout, RolloutError, StopReason
from rl_contracts.documents.task import Task
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import Reward
from rl_sampler.agents import Agent
from rl_sampler.agents.errors import UnusableError
from rl_sampler.agents.member import Group, Member, Opening
from rl_sampler.agents.prompt import PromptError
from rl_sampler.completions.errors import NoCompletionError
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.tally import Tally
from rl_sampler.episodes import completion
from rl_sampler.episodes.rollout import Ending, build_rollout, is_usable
from rl_sampler.scorers import Scorers
from rl_sampler.scorers.answers import ANSWERS
from rl_sampler.scorers.response import Response
from rl_sampler.tasks.claims import LEASE_SECONDS, EpisodeEndedError
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.user_code.errors import UserCodeError

logger = logging.getLogger(__name__)

ErrorKind = Literal["infrastructure", "user"]
MESSAGE_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Acts out members of groups."""

    spec: RLJobSpec
    act: Agent
    scorers: Scorers
    serving: Serving
    tally: Tally

    async def apart(
        self, group: Group, missing: Sequence[int], *, seconds: float, enough: int
    ) -> list[Rollout]:
        """Act out members each by itself, so that stragglers can be left behind.

        Args:
            group: theirs.
            missing: their numbers.
            seconds: after so many only ``enough`` usable ones that are sampled are waited for.
            enough: see there.
        """

        async def play(number: int) -> Rollout:
            sampled = await group.policy_of(number).sample(group.prompt)
            return await self._finish(group, number, Opening.of_group(group.prompt, sampled)[0])

        played = await completion.gathered(
            {number: play(number) for number in missing},
            seconds=seconds,
            enough=enough,
            counts=lambda rollout: rollout.error is None and not rollout.greedy,
            needed=[number for number in missing if group.task.is_baseline(number)],
        )
        return list(played.values())

    async def together(self, group: Group, missing: Sequence[int]) -> list[Rollout]:
        """Act out members whose first responses come from one call: they share its prefill.

        The baseline has a call of its own.
        """
        greedy = [number for number in missing if group.task.is_baseline(number)]
        sampled = [number for number in missing if number not in greedy]
        played = await asyncio.gather(
            *(self._from_one_call(group, some) for some in (sampled, greedy) if some),
            return_exceptions=True,
        )
        for one in played:
            if isinstance(one, BaseException):
                raise one
        return [one for some in played if isinstance(some, list) for one in some]

    async def _from_one_call(self, group: Group, numbers: Sequence[int]) -> list[Rollout]:
        policy = group.policy_of(numbers[0])
        sampled = await policy.sample(group.prompt, members=len(numbers))
        openings = Opening.of_group(group.prompt, sampled)
        played = await asyncio.gather(
            *(
                self._finish(group, number, opening)
                for number, opening in zip(numbers, openings, strict=True)
            ),
            return_exceptions=True,
        )
        for one in played:
            if isinstance(one, BaseException):
                raise one
        return [one for one in played if isinstance(one, Rollout)]

    def oldest_step(self) -> int:
        """Oldest policy step whose tokens the next training step may still use."""
        step = self.serving.run.step if self.serving.run else 0
        return step - self.spec.algorithm.off_policy.max_staleness

    async def _finish(self, group: Group, number: int, opening: Opening) -> Rollout:
        """Act out and score one member; a failure becomes data, with its class."""
        member = group.member(number)
        try:
            member.open(opening)
            reason = await self.act(member)
            ending = await self._score(member, group.task, reason)
        except (PromptError, EpisodeEndedError):
            raise  # these end the whole group
        except (EngineError, ToolDownError, NoCompletionError, UnusableError) as error:
            ending = _failed(str(error))
        except UserCodeError as error:
            logger.warning("member %d of %s: %s", number, group.task.id, error)
            ending = _failed(str(error), kind="user")
        except Exception as error:  # the rollout boundary: kept as data, counted
            logger.exception("member %d of %s failed", number, group.task.id)
            ending = _failed(f"{type(error).__name__}: {error}")
        self.tally.tokens_generated += member.trace.mask.count(1)
        rollout = build_rollout(
            member.trace,
            member.turns,
            ending,
            task=group.task,
            member=number,
            claimed_at=group.task.lease_until - LEASE_SECONDS,
        )
        return self._judged(rollout, group.task)

    def _judged(self, rollout: Rollout, task: Task) -> Rollout:
        if rollout.error or is_usable(rollout, task=task, oldest_step=self.oldest_step()):
            return rollout
        found = sorted({(span.version, span.step) for span in rollout.spans})
        message = f"sampled by (version, step) {found}, which is not wanted any more"
        return rollout.model_copy(update={"error": _error(message)})

    async def _score(self, member: Member, task: Task, reason: StopReason) -> Ending:
        started, reward = time.monotonic(), self._reward(task)
        text, said = member.turns[-1].text, member.turns[-1].response
        response = Response(
            text=text,
            answer=ANSWERS[reward.answer_schema](text),
            reference=task.answer,
            messages=member.conversation,
            tokens=said.end - said.start,
            most_tokens=self.spec.agent.sampling.max_tokens_per_turn,
        )
        try:
            # A judge may be away for long: the end of the claim ends the wait for it.
            parts = await member.policy.claim.attend(self.scorers.score(response, reward=reward))
        except (UserCodeError, EpisodeEndedError):
            raise
        except Exception as error:  # the rollout boundary: a scorer's failure is never a reward
            logger.exception("scoring a member of %s failed", task.id)
            raise UnusableError(f"scoring failed: {type(error).__name__}: {error}") from error
        return Ending(stop_reason=reason, parts=parts, score_seconds=time.monotonic() - started)

    def check_scorers(self, task: Task) -> None:
        """Raise PromptError where a task asks for a scorer that is not known here."""
        unknown = self.scorers.unknown(self._reward(task))
        if unknown:
            known = ", ".join(self.scorers.known)
            raise PromptError(f"its record asks for scorer {unknown[0]}; known are {known}")

    def _reward(self, task: Task) -> Reward:
        return self.spec.reward.of_record(scorer=task.scorer, answer_schema=task.answer_schema)


def _error(message: str, kind: ErrorKind = "infrastructure") -> RolloutError:
    return RolloutError(kind=kind, message=message[:MESSAGE_CHARACTERS])


def _failed(message: str, kind: ErrorKind = "infrastructure") -> Ending:
    return Ending(stop_reason=StopReason.ERROR, error=_error(message, kind))
