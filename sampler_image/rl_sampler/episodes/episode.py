"""A claim from prompt to data: adopt, sample, score, write, complete."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.agents import IN_TEXT, with_instructions
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.group import Group
from rl_sampler.agents.images import placed
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.prompt import PromptError, check_length
from rl_sampler.agents.user import Users
from rl_sampler.engine.client import Engine
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.images import RunImages
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores
from rl_sampler.engine.slots import Slots
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.episodes import group_completion
from rl_sampler.episodes.rollout import adopted, resumable
from rl_sampler.episodes.rollout_runner import RolloutRunner
from rl_sampler.episodes.turn_saves import KeptTurns, TurnSaves, keeps_turns
from rl_sampler.tasks.claims import (
    LEASE_SECONDS,
    Claim,
    EpisodeEndedError,
    UnusableMemberError,
    complete,
)
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError
from rl_sampler.tools.waiting import WaitingToolbox

logger = logging.getLogger(__name__)

VERSION_WAIT_SECONDS = 15.0
REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRunner:
    """Works on claims."""

    spec: RLJobSpec
    engine: Engine
    watch: EngineWatch
    chats: Chats
    stop_tokens: tuple[int, ...]
    toolbox: WaitingToolbox
    rollout_runner: RolloutRunner
    users: Users
    shared: SharedStores
    serving: Serving
    slots: Slots
    counters: Counters
    problems: Problems
    images: RunImages | None = None
    """Of the run; None where neither records nor tools show any."""

    async def run(self, claim: Claim) -> None:
        """Work on a claim until it is completed or handed back, or its task is dead.

        Raises:
            CancelledError: the only exception; every other failure ends the claim.
        """
        try:
            done = await self._attempt(claim)
        except (PromptError, ToolsRefusedError) as error:
            await self._give_up(claim, str(error), Cause.PROMPT)
        except EpisodeEndedError as error:
            await self._give_up(claim, str(error), claim.cause)
        except (EngineError, ToolDownError, UnusableMemberError) as error:
            await self._give_up(claim, str(error), claim.cause)
        except Exception as error:  # the rollout boundary: kept as data, counted
            logger.exception("episode of %s failed", claim.task.id)
            await self._give_up(claim, f"{type(error).__name__}: {error}")
        else:
            self._count(claim, done)

    def _count(self, claim: Claim, done: bool) -> None:
        if done:
            self.counters.groups_done += 1
            self.problems.clear("episode")
        else:
            self.counters.groups_failed += 1
            logger.warning("%s was finished after its claim was lost", claim.task.id)

    async def _attempt(self, claim: Claim) -> bool:
        """Sample what is missing and complete the task; False when the claim was lost before."""
        task = claim.task
        self.rollout_runner.check_scorers(task)
        group = await self.group(claim, longest=self.spec.agent.sampling.max_prompt_tokens)
        await self._reach_version(task)
        stored = await self._stored(claim)
        members = self._adopt(claim, stored)
        missing = [index for index in range(task.num_members) if index not in members]
        failures: list[str] = []
        if missing:
            enough = (task.minimum or task.group_size) - sum(
                not task.is_baseline(member) for member in members
            )
            turns = await self._turns(claim, stored)
            try:
                sampled = await (
                    self.rollout_runner.run_separately(
                        group, missing, turns=turns, seconds=_seconds_left(claim), enough=enough
                    )
                    if task.minimum or self.rollout_runner.withholds(task)
                    else self.rollout_runner.run_together(group, missing, turns=turns)
                )
            finally:  # a late save would be of members that are over
                await turns.saves.close()
            claim.end_sampling()
            # Good members are kept even if others failed: the next attempt adopts them.
            await self._persist(claim, sampled)
            members |= {rollout.member: rollout for rollout in sampled if rollout.error is None}
            failures = [
                f"member {rollout.member}: {rollout.error.message}"
                for rollout in sampled
                if rollout.error
            ]
        chosen = group_completion.members_to_complete(
            members, task, seconds_left=_seconds_left(claim)
        )
        if chosen is None:
            raise _failure(claim, "; ".join(failures), failed=len(failures), good=len(members))
        began, written = time.monotonic(), [members[number].id for number in chosen]
        done = await complete(self.shared, claim, written)
        for name in written:
            self.rollout_runner.traces.later(name, "complete", seconds=time.monotonic() - began)
        if done and keeps_turns(self.spec.agent):
            with contextlib.suppress(*OUTAGES):  # retention deletes what is left
                await self.shared.call(self.shared.stores.turns.delete_task, task.id)
        return done

    async def group(self, claim: Claim, *, longest: int | None) -> Group:
        """What the members of a claim share, with all tools listed.

        Args:
            claim: the claim.
            longest: most tokens of the prompt; None: as many as the context has.

        Raises:
            PromptError, ToolsRefusedError: no attempt can succeed.
            EpisodeEndedError: the claim was ended.
        """
        agent, task = self.spec.agent, claim.task
        tools = await claim.run(self.toolbox.open())
        messages, listed = task.messages, tools.listed
        if agent.kind in IN_TEXT:
            instructions = self.chats.harmless(IN_TEXT[agent.kind](listed))
            messages, listed = with_instructions(messages, instructions), []
        chat = self.chats.of(listed, several_turns=agent.kind != "SingleTurn")
        prompt = [] if agent.begins_itself else chat.opening(messages)
        check_length(prompt, most=longest)
        policy = Policy(
            claim=claim,
            sampling=agent.sampling,
            stop_tokens=self.stop_tokens,
            engine=self.engine,
            watch=self.watch,
            serving=self.serving,
            slots=self.slots,
            counters=self.counters,
            images=self.images,
            routed=self.spec.algorithm.experts.routing == "Replay",
        )
        return Group(
            agent=agent,
            task=task,
            chat=chat,
            tools=tools,
            users=self.users,
            policy=policy,
            messages=messages,
            prompt=prompt,
            images=placed(
                prompt,
                [image for message in messages for image in message.images],
                chat.placeholders,
            ),
        )

    async def _reach_version(self, task: Task) -> None:
        if task.queue is not Queue.EVALUATION:
            return
        wanted = task.evaluation_version

        def reached() -> bool:
            policy = self.serving.policy
            return policy is not None and policy.version >= wanted

        # The trainer publishes and inserts at once; this process may read the run a moment later.
        await self.serving.wait_until(reached, seconds=VERSION_WAIT_SECONDS)
        policy = self.serving.policy
        held = policy.version if policy else 0
        if held != wanted:
            raise UnusableMemberError(
                f"the evaluation needs version {wanted}, the engine serves version {held}"
            )

    async def _stored(self, claim: Claim) -> list[Rollout]:
        """What earlier attempts of the task have written."""
        nothing: list[Rollout] = []
        if claim.task.attempt <= 1:
            return nothing
        of_task = self.shared.stores.rollouts.of_task
        return await self.shared.retry(
            lambda: of_task(claim.task.id), wanted=lambda: not claim.lost, otherwise=nothing
        )

    async def _turns(self, claim: Claim, stored: Sequence[Rollout]) -> KeptTurns:
        saves = TurnSaves(self.shared, self.counters)
        if not keeps_turns(self.spec.agent) or claim.task.attempt <= 1:
            return KeptTurns(saves=saves)
        of_task, nothing = self.shared.stores.turns.of_task, list[SavedTurn]()
        turns = await self.shared.retry(
            lambda: of_task(claim.task.id), wanted=lambda: not claim.lost, otherwise=nothing
        )
        oldest = self.rollout_runner.oldest_step()
        saved = resumable(stored, turns, task=claim.task, oldest_step=oldest)
        return KeptTurns(saves=saves, saved=saved)

    def _adopt(self, claim: Claim, stored: Sequence[Rollout]) -> dict[int, Rollout]:
        task = claim.task
        withhold = self.rollout_runner.withholds(task)
        oldest = self.rollout_runner.oldest_step()
        members = adopted(stored, task=task, oldest_step=oldest, withhold=withhold)
        if withhold:  # whether the claim is of use depends on them, too
            claim.kept |= {number: rollout.oldest_step for number, rollout in members.items()}
        self.counters.members_adopted += len(members)
        return members

    async def _persist(self, claim: Claim, rollouts: Sequence[Rollout]) -> None:
        put = self.shared.stores.rollouts.put
        await self.shared.retry(
            lambda: put(rollouts), wanted=lambda: not claim.lost, otherwise=None
        )

    async def _give_up(self, claim: Claim, reason: str, cause: Cause = Cause.FAILED) -> None:
        self.counters.groups_failed += 1
        self.counters.groups_expired += cause is Cause.EXPIRED
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
        """Hand a claim back for another attempt, or declare its task dead.

        Args:
            claim: the claim.
            reason: stored with the task.
            cause: class of the reason; PROMPT makes the task dead, since no attempt can succeed.
            seconds: how long an outage of the store is waited for; after that the lease runs out.
        """
        tasks = self.shared.stores.tasks
        release = tasks.kill if cause is Cause.PROMPT else tasks.hand_back
        until = time.monotonic() + seconds
        await self.shared.retry(
            lambda: release(claim.task, reason=reason[:REASON_CHARACTERS], cause=cause),
            wanted=lambda: not claim.lost and time.monotonic() < until,
            otherwise=False,
        )


def _failure(claim: Claim, message: str, *, failed: int, good: int) -> Exception:
    """What ends an attempt without enough members.

    Args:
        claim: the claim.
        message: of the members that failed.
        failed: their number.
        good: number of members that can be trained.
    """
    if 0 < failed == len(claim.too_long) and (not good or claim.task.exhausted):
        return PromptError(message)
    return UnusableMemberError(message)


def _seconds_left(claim: Claim) -> float:
    return group_completion.seconds_left(
        claim.task, lease_seconds=LEASE_SECONDS, elapsed=time.monotonic() - claim.taken
    )
