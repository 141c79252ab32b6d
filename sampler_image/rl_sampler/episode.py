"""One claim from prompt to data: adopt, sample, score, write, complete."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.rollout import RewardPart, Rollout, Timings
from rl_contracts.documents.task import Queue, Task
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.claims import LEASE_SECONDS, Claim, EpisodeEndedError
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError, EngineUnavailableError
from rl_sampler.engine.protocol import GenerateRequest, Generation
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.problems import Problems
from rl_sampler.prompt import PromptError, Prompts, tokens_left
from rl_sampler.rollout import adopted, build_rollout, checked_trace, is_usable
from rl_sampler.scorers import score
from rl_sampler.serving import Serving
from rl_sampler.shared import SharedState
from rl_sampler.slots import Slots
from rl_sampler.tally import Tally

logger = logging.getLogger(__name__)

VERSION_WAIT_SECONDS = 15.0
REASON_CHARACTERS = 500


class UnusableError(Exception):
    """Members were sampled that cannot become data; they are sampled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One member as the engine returned it."""

    member: int
    generation: Generation
    prompt: Sequence[int]
    seconds: float
    """Of the call that sampled its whole group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRunner:
    """Works on claims; everything it needs comes in."""

    spec: RLJobSpec
    engine: Engine
    watch: EngineWatch
    prompts: Prompts
    shared: SharedState
    serving: Serving
    slots: Slots
    tally: Tally
    problems: Problems

    async def run(self, claim: Claim) -> None:
        """See one claim through: complete it, hand it back, or end it. Never raises but cancel."""
        try:
            done = await self._attempt(claim)
        except PromptError as error:
            await self._give_up(claim, str(error), dead=True)
        except (EngineError, EpisodeEndedError, UnusableError) as error:
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
        prompt = self.prompts.encode(task.messages)
        await self._reach_version(task)
        members = await self._adopt(claim)
        missing = [one for one in range(task.group_size) if one not in members]
        failures: list[str] = []
        if missing:
            started = time.monotonic()
            generations = await self._sample(claim, prompt, members=len(missing))
            seconds = time.monotonic() - started
            fresh: list[Rollout] = []
            for member, generation in zip(missing, generations, strict=True):
                sampled = Sampled(
                    member=member, generation=generation, prompt=prompt, seconds=seconds
                )
                try:
                    fresh.append(self._finish(task, sampled))
                except (EngineError, UnusableError) as error:
                    failures.append(f"member {member}: {error}")
            # Good members are kept even if others failed: the next attempt adopts them.
            await self._persist(claim, fresh)
            members |= {one.member: one for one in fresh}
        if failures:
            raise UnusableError("; ".join(failures))
        return await self._complete(claim, [members[one].id for one in range(task.group_size)])

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

    async def _sample(
        self, claim: Claim, prompt: Sequence[int], *, members: int
    ) -> list[Generation]:  # fmt: skip
        info = self.serving.engine
        if info is None:
            raise EngineUnavailableError("engine is not up")
        sampling = self.spec.agent.sampling
        request = GenerateRequest(
            prompt=list(prompt),
            members=members,
            temperature=claim.task.temperature,
            max_new_tokens=tokens_left(
                prompt=len(prompt),
                turn=sampling.max_tokens_per_turn,
                context=sampling.max_context_tokens,
                engine=info.max_req_input_len,
            ),
            stop_tokens=self.prompts.stop_tokens,
        )
        async with self.slots.take(members, of=info.max_running_requests):
            return await self._ask_engine(claim, request)

    async def _ask_engine(self, claim: Claim, request: GenerateRequest) -> list[Generation]:
        policy = self.serving.policy
        if policy is None:
            raise EngineUnavailableError("engine serves no published policy")
        if claim.ended:
            raise EpisodeEndedError(claim.ended)
        claim.begun_step = policy.step
        claim.request = asyncio.create_task(self.engine.generate(request))
        try:
            return await claim.request
        except asyncio.CancelledError:
            if claim.ended and claim.request.cancelled():
                raise EpisodeEndedError(claim.ended) from None
            raise
        except EngineUnavailableError:
            self.watch.doubt()
            raise
        finally:
            claim.begun_step = None

    def _finish(self, task: Task, sampled: Sampled) -> Rollout:
        trace = checked_trace(
            sampled.generation, prompt=sampled.prompt, known=self.serving.known
        )  # fmt: skip
        text = self.prompts.decode(trace.output)
        started = time.monotonic()
        parts = self._score(text, task)
        timings = Timings(
            claimed_at=task.lease_until - LEASE_SECONDS,
            generate_seconds=sampled.seconds,
            score_seconds=time.monotonic() - started,
        )
        rollout = build_rollout(
            trace, task=task, member=sampled.member, text=text, parts=parts, timings=timings
        )
        self.tally.tokens_generated += len(trace.output)
        if not is_usable(rollout, task=task, oldest_step=self._oldest_step()):
            found = sorted({(span.version, span.step) for span in rollout.spans})
            raise UnusableError(f"sampled by (version, step) {found}, which is not wanted any more")
        return rollout

    def _score(self, text: str, task: Task) -> list[RewardPart]:
        try:
            return score(text, reference=task.answer, reward=self.spec.reward)
        except Exception as error:  # the rollout boundary: a scorer's failure is never a reward
            logger.exception("scoring a member of %s failed", task.id)
            raise UnusableError(f"scoring failed: {type(error).__name__}: {error}") from error

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

    async def _give_up(self, claim: Claim, reason: str, *, dead: bool = False) -> None:
        self.tally.groups_failed += 1
        logger.warning("%s ended without data: %s", claim.task.id, reason)
        self.problems.note("episode", f"{claim.task.id}: {reason}")
        await self.hand_back(claim, reason, dead=dead)

    async def hand_back(
        self, claim: Claim, reason: str, *, dead: bool = False, seconds: float = LEASE_SECONDS
    ) -> None:
        """Give a claim back for another attempt, or declare its task dead.

        Args:
            claim: whose work is over.
            reason: why, for whoever reads the task.
            dead: no further attempt could end otherwise.
            seconds: how long outages are sat out; after that the lease runs out.
        """
        tasks = self.shared.stores.tasks
        release = tasks.kill if dead else tasks.hand_back
        until = time.monotonic() + seconds
        await self.shared.insist(
            lambda: release(claim.task, reason=reason[:REASON_CHARACTERS]),
            wanted=lambda: not claim.lost and time.monotonic() < until,
            otherwise=False,
        )
