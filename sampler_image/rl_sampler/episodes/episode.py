"""One claim from prompt to data: adopt, sample, score, write, complete."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.agents import IN_TEXT, introduced
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.errors import UnusableError
from rl_sampler.agents.member import Group
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.prompt import PromptError
from rl_sampler.agents.user import Users
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedState
from rl_sampler.engine.slots import Slots
from rl_sampler.engine.tally import Tally
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.episodes import completion
from rl_sampler.episodes.rollout import adopted
from rl_sampler.episodes.rollout_runner import Player
from rl_sampler.tasks.claims import LEASE_SECONDS, Claim, EpisodeEndedError, complete
from rl_sampler.tools.patience import PatientToolbox
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError

logger = logging.getLogger(__name__)

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
    player: Player
    users: Users
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
        self.player.check_scorers(task)
        group = await self._group(claim)
        await self._reach_version(task)
        members = await self._adopt(claim)
        missing = [index for index in range(task.num_members) if index not in members]
        failures: list[str] = []
        if missing:
            enough = task.minimum - sum(not task.is_baseline(member) for member in members)
            played = await (
                self.player.apart(group, missing, seconds=_seconds_left(claim), enough=enough)
                if task.minimum
                else self.player.together(group, missing)
            )
            claim.begun_step = None
            # Good members are kept even if others failed: the next attempt adopts them.
            await self._persist(claim, played)
            members |= {one.member: one for one in played if one.error is None}
            failures = [f"member {one.member}: {one.error.message}" for one in played if one.error]
        chosen = completion.chosen(members, task, seconds_left=_seconds_left(claim))
        if chosen is None:
            raise UnusableError("; ".join(failures))
        return await complete(self.shared, claim, [members[one].id for one in chosen])

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
        members = adopted(found, task=task, oldest_step=self.player.oldest_step())
        self.tally.members_adopted += len(members)
        return members

    async def _persist(self, claim: Claim, rollouts: Sequence[Rollout]) -> None:
        put = self.shared.stores.rollouts.put
        await self.shared.insist(
            lambda: put(rollouts), wanted=lambda: not claim.lost, otherwise=None
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
