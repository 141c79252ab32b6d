"""One claim from prompt to data: adopt, sample, score, write, complete."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.documents.rollout import Rollout, RolloutError, StopReason
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import Reward
from rl_sampler import completion
from rl_sampler.agents import IN_TEXT, Agent, introduced
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.errors import UnusableError
from rl_sampler.agents.member import Group, Member, Opening
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.user import Users
from rl_sampler.answers import ANSWERS
from rl_sampler.claims import LEASE_SECONDS, Claim, EpisodeEndedError
from rl_sampler.completions.errors import NoCompletionError
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.problems import Problems
from rl_sampler.prompt import PromptError
from rl_sampler.rollout import Ending, adopted, build_rollout, is_usable
from rl_sampler.scorers import Scorers
from rl_sampler.scorers.response import Response
from rl_sampler.serving import Serving
from rl_sampler.shared import SharedState
from rl_sampler.slots import Slots
from rl_sampler.tally import Tally
from rl_sampler.tools.patience import PatientToolbox
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError
from rl_sampler.user_code.errors import UserCodeError

logger = logging.getLogger(__name__)

ErrorKind = Literal["infrastructure", "user"]
VERSION_WAIT_SECONDS = 15.0
REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRunner:
    """Works on claims; everything it needs comes in."""

    spec: RLJobSpec
    engine: Engine
    watch: EngineWatch
    chats: Chats
    stop_tokens: tuple[int, ...]
    toolbox: PatientToolbox
    act: Agent
    users: Users
    scorers: Scorers
    shared: SharedState
    serving: Serving
    slots: Slots
    tally: Tally
    problems: Problems

    async def run(self, claim: Claim) -> None:
        """See one claim through: complete it, hand it back, or end it. Never raises but cancel."""
        try:
            done = await self._attempt(claim)
        except (PromptError, ToolsRefusedError) as error:
            await self._give_up(claim, str(error), Cause.PROMPT)
        except EpisodeEndedError as error:
            await self._give_up(claim, str(error), claim.cause)
        except (EngineError, ToolDownError, UnusableError) as error:
            await self._give_up(claim, str(error))
        except Exception as error:  # the rollout boundary: kept as data, counted
            logger.exception("episode of %s failed", claim.task.id)
            await self._give_up(claim, f"{type(error).__name__}: {error}")
        else:
            self._count(claim, done)

    def _count(self, claim: Claim, done: bool) -> None:
        if done:
            self.tally.groups_done += 1
            self.problems.clear("episode")
        else:
            self.tally.groups_failed += 1
            logger.warning("%s was no longer ours when it was finished", claim.task.id)

    async def _attempt(self, claim: Claim) -> bool:
        """Do all of it; False when the claim was lost before it was complete."""
        task = claim.task
        self._check_scorers(task)
        group = await self._group(claim)
        await self._reach_version(task)
        members = await self._adopt(claim)
        missing = [one for one in range(task.num_members) if one not in members]
        failures: list[str] = []
        if missing:
            enough = task.minimum - sum(not task.is_baseline(one) for one in members)
            played = await (
                self._play_apart(claim, group, missing, enough=enough)
                if task.minimum
                else self._play(group, missing)
            )
            claim.begun_step = None
            # Good members are kept even if others failed: the next attempt adopts them.
            await self._persist(claim, played)
            members |= {one.member: one for one in played if one.error is None}
            failures = [
                f"member {one.member}: {one.error.message}" for one in played if one.error
            ]  # fmt: skip
        chosen = completion.chosen(members, task, seconds_left=_seconds_left(claim))
        if chosen is None:
            raise UnusableError("; ".join(failures))
        return await self._complete(claim, [members[one].id for one in chosen])

    async def _group(self, claim: Claim) -> Group:
        agent, task = self.spec.agent, claim.task
        tools = await claim.attend(self.toolbox.open())
        messages, listed = task.messages, tools.listed
        if agent.kind in IN_TEXT:
            messages, listed = introduced(messages, IN_TEXT[agent.kind](listed)), []
        chat = self.chats.of(listed, several_turns=agent.kind != "SingleTurn")
        policy = Policy(
            claim=claim,
            sampling=agent.sampling,
            stop_tokens=self.stop_tokens,
            engine=self.engine,
            watch=self.watch,
            serving=self.serving,
            slots=self.slots,
            tally=self.tally,
        )
        return Group(
            agent=agent,
            task=task,
            chat=chat,
            tools=tools,
            users=self.users,
            policy=policy,
            messages=messages,
            prompt=chat.opening(messages),
        )

    async def _play_apart(
        self, claim: Claim, group: Group, missing: Sequence[int], *, enough: int
    ) -> list[Rollout]:
        """Act out members each by itself, so that stragglers can be left behind."""

        async def play(number: int) -> Rollout:
            sampled = await group.policy_of(number).sample(group.prompt)
            return await self._finish(group, number, Opening.of_group(group.prompt, sampled)[0])

        played = await completion.gathered(
            {number: play(number) for number in missing},
            seconds=_seconds_left(claim),
            enough=enough,
            counts=lambda rollout: rollout.error is None and not rollout.greedy,
            needed=[number for number in missing if group.task.is_baseline(number)],
        )
        return list(played.values())

    async def _play(self, group: Group, missing: Sequence[int]) -> list[Rollout]:
        """Act out members whose first responses come from one call: they share its prefill.

        The baseline has a call of its own.
        """
        greedy = [number for number in missing if group.task.is_baseline(number)]
        sampled = [number for number in missing if number not in greedy]
        played = await asyncio.gather(
            *(self._play_together(group, some) for some in (sampled, greedy) if some),
            return_exceptions=True,
        )
        for one in played:
            if isinstance(one, BaseException):
                raise one
        return [one for some in played if isinstance(some, list) for one in some]

    async def _play_together(self, group: Group, numbers: Sequence[int]) -> list[Rollout]:
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

    async def _reach_version(self, task: Task) -> None:
        if task.queue is not Queue.EVALUATION:
            return
        wanted = task.evaluation_version

        def reached() -> bool:
            policy = self.serving.policy
            return policy is not None and policy.version >= wanted

        # The trainer publishes and inserts at once; our reading may be a moment behind.
        await self.serving.wait_until(reached, seconds=VERSION_WAIT_SECONDS)
        policy = self.serving.policy
        held = policy.version if policy else 0
        if held != wanted:
            raise UnusableError(f"wants version {wanted}, the engine serves {held}")

    async def _adopt(self, claim: Claim) -> dict[int, Rollout]:
        task = claim.task
        if task.attempt <= 1:
            return {}
        of_task = self.shared.stores.rollouts.of_task
        nothing: list[Rollout] = []
        found = await self.shared.insist(
            lambda: of_task(task.id), wanted=lambda: not claim.lost, otherwise=nothing
        )
        members = adopted(found, task=task, oldest_step=self._oldest_step())
        self.tally.members_adopted += len(members)
        return members

    def _oldest_step(self) -> int:
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
        if rollout.error or is_usable(rollout, task=task, oldest_step=self._oldest_step()):
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
        return Ending(
            stop_reason=reason, parts=parts, score_seconds=time.monotonic() - started
        )  # fmt: skip

    def _check_scorers(self, task: Task) -> None:
        unknown = self.scorers.unknown(self._reward(task))
        if unknown:
            known = ", ".join(self.scorers.known)
            raise PromptError(f"its record asks for scorer {unknown[0]}; known are {known}")

    def _reward(self, task: Task) -> Reward:
        return self.spec.reward.of_record(scorer=task.scorer, answer_schema=task.answer_schema)

    async def _persist(self, claim: Claim, rollouts: Sequence[Rollout]) -> None:
        put = self.shared.stores.rollouts.put
        await self.shared.insist(
            lambda: put(rollouts), wanted=lambda: not claim.lost, otherwise=None
        )

    async def _complete(self, claim: Claim, chosen: Sequence[str]) -> bool:
        complete = self.shared.stores.tasks.complete
        return await self.shared.insist(
            lambda: complete(claim.task, rollouts=chosen),
            wanted=lambda: not claim.lost,
            otherwise=False,
        )

    async def _give_up(self, claim: Claim, reason: str, cause: Cause = Cause.FAILED) -> None:
        self.tally.groups_failed += 1
        self.tally.groups_expired += cause is Cause.EXPIRED
        logger.warning("%s ended without data: %s", claim.task.id, reason)
        self.problems.note("episode", f"{claim.task.id}: {reason}")
        await self.hand_back(claim, reason, cause=cause)

    async def hand_back(
        self,
        claim: Claim,
        reason: str,
        *,
        cause: Cause = Cause.FAILED,
        seconds: float = LEASE_SECONDS,
    ) -> None:
        """Give a claim back for another attempt, or declare its task dead.

        Args:
            claim: whose work is over.
            reason: why, for whoever reads the task.
            cause: its class; with PROMPT no further attempt could end otherwise.
            seconds: how long outages are sat out; after that the lease runs out.
        """
        tasks = self.shared.stores.tasks
        release = tasks.kill if cause is Cause.PROMPT else tasks.hand_back
        until = time.monotonic() + seconds
        await self.shared.insist(
            lambda: release(claim.task, reason=reason[:REASON_CHARACTERS], cause=cause),
            wanted=lambda: not claim.lost and time.monotonic() < until,
            otherwise=False,
        )


def _seconds_left(claim: Claim) -> float:
    return completion.seconds_left(
        claim.task, lease_seconds=LEASE_SECONDS, elapsed=time.monotonic() - claim.taken
    )


def _error(message: str, kind: ErrorKind = "infrastructure") -> RolloutError:
    return RolloutError(kind=kind, message=message[:REASON_CHARACTERS])


def _failed(message: str, kind: ErrorKind = "infrastructure") -> Ending:
    return Ending(stop_reason=StopReason.ERROR, error=_error(message, kind))
