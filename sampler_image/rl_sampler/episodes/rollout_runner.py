"""Runs and scores the members of a group; a member that fails is stored with its error."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rl_contracts import ids, tracing
from rl_contracts.documents.rollout import (
    RewardPart,
    Rollout,
    RolloutError,
    StopReason,
)
from rl_contracts.documents.saved_turn import unfinished
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import Reward
from rl_contracts.staleness import oldest_trainable_step
from rl_contracts.tracing import Traced, Untraced
from rl_sampler.agents import Agent
from rl_sampler.agents.group import Group
from rl_sampler.agents.member import Member, Opening
from rl_sampler.agents.prompt import PromptError
from rl_sampler.agents.trace import continues_prompt
from rl_sampler.completions.errors import NoCompletionError
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineError, EngineUnavailableError
from rl_sampler.engine.serving import Serving
from rl_sampler.episodes import group_completion
from rl_sampler.episodes.rollout import Ending, build_rollout, is_usable
from rl_sampler.episodes.turn_saves import KeptTurns, keeps_turns
from rl_sampler.scorers import Scorers
from rl_sampler.scorers.code import read_cases
from rl_sampler.scorers.reading import recorded_answer
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.tasks.claims import (
    LEASE_SECONDS,
    EpisodeEndedError,
    LostError,
    UnusableMemberError,
)
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.user_code.call import UserCodeError

logger = logging.getLogger(__name__)

ErrorKind = Literal["infrastructure", "user"]
MESSAGE_CHARACTERS = 500
OF_THE_ATTEMPT = ("id", "attempt", "sampler")
CUT_OFF = (StopReason.LENGTH, StopReason.CONTEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRunner:
    """Runs the episodes of a group's members and scores them."""

    spec: RLJobSpec
    act: Agent
    scorers: Scorers
    serving: Serving
    counters: Counters
    traces: Traced = field(default_factory=Untraced)

    async def run_separately(
        self, group: Group, missing: Sequence[int], *, turns: KeptTurns, seconds: float, enough: int
    ) -> list[Rollout]:
        """Run each member with a request of its own, so that slow members can be aborted.

        Args:
            group: the members' group.
            missing: the members' numbers.
            turns: those that were saved, and where to save more.
            seconds: how long all members are waited for.
            enough: after that time, so many usable sampled members end the wait. The baseline is
                waited for in any case.
        """
        rollouts = await group_completion.gather_enough(
            {number: self._finish(group, number, None, turns) for number in missing},
            seconds=seconds,
            enough=enough,
            counts=lambda rollout: (
                rollout.error is None and not group.task.is_baseline(rollout.member)
            ),
            needed=[number for number in missing if group.task.is_baseline(number)],
        )
        return list(rollouts.values())

    async def run_together(
        self, group: Group, missing: Sequence[int], *, turns: KeptTurns
    ) -> list[Rollout]:
        """Run members whose first responses come from the same call, which shares their prefill.

        The baseline is sampled greedily and has a call of its own. Programs and environments make
        prompts of their own.
        """
        if self.begins_itself:
            return await group_completion.gather_all(
                [self._finish(group, number, None, turns) for number in missing]
            )
        resumed = [number for number in missing if number in turns.saved]
        greedy = [
            number for number in missing if group.task.is_greedy(number) and number not in resumed
        ]
        sampled = [number for number in missing if number not in (*greedy, *resumed)]
        rollouts = await group_completion.gather_all(
            [
                *(
                    self._run_shared_call(group, numbers, turns)
                    for numbers in (sampled, greedy)
                    if numbers
                ),
                *(self._run_alone(group, number, turns) for number in resumed),
            ]
        )
        return [rollout for of_call in rollouts for rollout in of_call]

    async def _run_alone(self, group: Group, number: int, turns: KeptTurns) -> list[Rollout]:
        return [await self._finish(group, number, None, turns)]

    async def _run_shared_call(
        self, group: Group, numbers: Sequence[int], turns: KeptTurns
    ) -> list[Rollout]:
        policy = group.policy_of(numbers[0])
        sampled = await policy.sample(group.prompt, images=group.images, members=len(numbers))
        openings = Opening.of_group(group.prompt, sampled)
        return await group_completion.gather_all(
            [
                self._finish(group, number, opening, turns)
                for number, opening in zip(numbers, openings, strict=True)
            ]
        )

    def oldest_step(self) -> int:
        """Oldest policy step whose tokens the next training step may still use."""
        return oldest_trainable_step(
            self.serving.run.step if self.serving.run else 0,
            max_staleness=self.spec.algorithm.off_policy.max_staleness,
        )

    def withholds(self, task: Task) -> bool:
        """Whether members that are too old to train count with their rewards."""
        return task.queue is Queue.TRAIN and self.spec.algorithm.off_policy.withholds

    @property
    def begins_itself(self) -> bool:
        """Whether the agent asks for its first response, too: a program, or in an environment."""
        return self.spec.agent.begins_itself

    async def _finish(
        self, group: Group, number: int, opening: Opening | None, turns: KeptTurns
    ) -> Rollout:
        """Run and score a member; a failure is recorded in the rollout, with its class.

        Args:
            group: the member's.
            number: of the member.
            opening: its first response; None where it is to ask for it, or was saved.
            turns: those that were saved, and where to save more.
        """
        member, task = group.member(number), group.task
        name = ids.rollout_id(ids.TaskId(task.id), task.attempt, number)
        ago = time.monotonic() - member.policy.claim.taken
        with self.traces.rollout(name, ago=ago, **_about(task, number)) as facts:
            ending = await self._play(member, group, opening, turns)
            generated = member.trace.mask.count(1) - member.replayed_tokens
            self.counters.tokens_generated += generated
            self.counters.turns_replayed += member.replayed_turns
            rollout = self._reject_if_unusable(_rollout(member, ending, task=task), task)
            facts |= _outcome(rollout)
        if not (ending.goes_on and keeps_turns(self.spec.agent)):
            return rollout
        # A program that was given its first responses again, and then lost, loses no others.
        given = turns.saved.get(number) if rollout.turns else None
        return _behind_its_turns(rollout, unfinished(member.finished) or given)

    async def play_alone(
        self, group: Group, *, scored: bool, on_turn: Callable[[Member], None] | None = None
    ) -> tuple[Member, Rollout]:
        """Run a group's first member for a person: nothing is saved, and no policy is too old.

        Args:
            group: of the claim, which need not be in the store.
            scored: have the task's scorers judge it; else the reward is 0.
            on_turn: called with each turn that another one follows.

        Raises:
            PromptError, EpisodeEndedError: as of any member.
        """
        member = group.member(0)
        member.on_turn = on_turn
        ending = await self._play(member, group, None, None, scored=scored)
        return member, _rollout(member, ending, task=group.task)

    async def _play(
        self,
        member: Member,
        group: Group,
        opening: Opening | None,
        turns: KeptTurns | None,
        *,
        scored: bool = True,
    ) -> Ending:
        """Run and score a member; says how it ended, also where it failed."""
        acted = False
        try:
            await self._begin(member, group, opening, turns)
            try:
                reason = await self.act(member)
            finally:
                await member.tools.close()
            acted = True
            if not scored:
                return Ending(stop_reason=reason)
            return await self._score(member, group.task, reason)
        except PromptError:
            raise  # it ends the whole group
        except EpisodeEndedError as error:
            if not (self.withholds(group.task) and member.policy.claim.cause is Cause.EXPIRED):
                raise  # the whole group ends
            return _failed(str(error))  # members that have finished are kept for the next attempt
        except (EngineError, ToolDownError, NoCompletionError, UnusableMemberError) as error:
            return replace(_failed(str(error)), goes_on=self._goes_on(member, error, acted=acted))
        except UserCodeError as error:
            logger.warning("member %d of %s: %s", member.number, group.task.id, error)
            goes_on = self._goes_on(member, error, acted=acted)
            return replace(_failed(str(error), kind="user"), goes_on=goes_on)
        except Exception as error:  # the rollout boundary: recorded in the rollout
            logger.exception("member %d of %s failed", member.number, group.task.id)
            return _failed(f"{type(error).__name__}: {error}")

    def _goes_on(self, member: Member, error: Exception, *, acted: bool) -> bool:
        """Whether the next attempt may continue the turns behind which a member failed.

        Where the engine or what acts beside the policy has ended, always. Where a tool, a user or a
        scorer failed, only if this attempt got further than the one that it continued: what fails
        by the content of the turns would fail for ever. A program or an environment that failed
        otherwise begins again.

        Args:
            member: the member.
            error: its failure.
            acted: the episode was over, and a scorer failed.
        """
        if isinstance(error, (EngineUnavailableError, LostError)):
            return True
        beside = isinstance(error, (ToolDownError, NoCompletionError, UserCodeError))
        return (acted or (beside and not self.begins_itself)) and (
            len(member.finished) > member.replayed_turns
        )

    async def _begin(
        self, member: Member, group: Group, opening: Opening | None, turns: KeptTurns | None
    ) -> None:
        """Bring a member to where its agent takes over."""
        if turns is not None and self._resume(member, group, turns):
            return
        if opening is None and not self.begins_itself:
            sampled = await member.policy.sample(group.prompt, images=group.images)
            (opening,) = Opening.of_group(group.prompt, sampled)
        if opening is not None:
            member.open(opening)

    def _resume(self, member: Member, group: Group, turns: KeptTurns) -> bool:
        """Have a member's turns saved; whether it goes on behind saved ones."""
        if keeps_turns(self.spec.agent):
            member.on_turn = lambda member: turns.saves.save(member.finished)
        saved = turns.saved.get(member.number)
        if self.begins_itself:
            member.saved = saved
            return False
        if saved is None or not continues_prompt(saved, group.prompt):
            return False
        member.resume(saved)
        return True

    def _reject_if_unusable(self, rollout: Rollout, task: Task) -> Rollout:
        if rollout.error or is_usable(
            rollout, task=task, oldest_step=self.oldest_step(), withhold=self.withholds(task)
        ):
            return rollout
        versions = sorted({(span.version, span.step) for span in rollout.spans})
        message = f"sampled by (version, step) {versions}, which can no longer be used"
        return rollout.model_copy(update={"error": _error(message)})

    async def _score(self, member: Member, task: Task, reason: StopReason) -> Ending:
        started, reward = time.monotonic(), self._reward(task)
        if member.forfeited:
            parts = [
                RewardPart(scorer=scorer.kind, value=0.0, weight=scorer.weight)
                for scorer in reward.scorers
            ]
            return Ending(stop_reason=reason, parts=parts)
        turn = member.turns[-1]
        response = Response(
            text=turn.text,
            answer=None,
            reference=task.answer,
            fields=task.record_fields,
            messages=member.conversation,
            opened=member.opened,
            tokens=turn.response.end - turn.response.start,
            max_tokens=self.spec.agent.sampling.max_tokens_per_turn,
            cut_off=turn.stop_reason in CUT_OFF,
            thinking=member.opens_thinking(turn),
            submitted=member.submitted,
            reported=member.reported,
            earned=member.earned,
        )
        answer = recorded_answer(response, reward)
        try:
            # A judge may be down for long: the end of the claim ends the wait.
            with tracing.span("score"):
                parts = await member.policy.claim.run(self.scorers.score(response, reward=reward))
        except (UserCodeError, EpisodeEndedError):
            raise
        except Exception as error:  # the rollout boundary: a scorer's failure is never a reward
            logger.exception("scoring a member of %s failed", task.id)
            raise UnusableMemberError(f"scoring failed: {type(error).__name__}: {error}") from error
        return Ending(
            stop_reason=reason,
            parts=parts,
            answer=answer,
            score_seconds=time.monotonic() - started,
        )

    def check_scorers(self, task: Task) -> None:
        """Raise PromptError where no response to a task could be scored.

        It names a scorer that this sampler does not have, or its tests cannot be run.
        """
        reward = self._reward(task)
        unknown = self.scorers.unknown(reward)
        if unknown:
            known = ", ".join(self.scorers.known)
            raise PromptError(
                f"the record names scorer {unknown[0]}, which this sampler does not have: "
                f"use one of {known}"
            )
        if CODE in [scorer.kind for scorer in reward.scorers]:
            try:
                read_cases(task.answer)
            except ScoringError as error:
                raise PromptError(
                    f"scorer {CODE} cannot use the record's answer: {error}"
                ) from error

    def _reward(self, task: Task) -> Reward:
        return self.spec.reward.of_record(scorer=task.scorer, answer_schema=task.answer_schema)


def _about(task: Task, number: int) -> dict[str, Any]:
    """Attributes of a rollout's root span: no texts."""
    return {"rl.task": task.id, "rl.member": number, "rl.attempt": task.attempt}


def _outcome(rollout: Rollout) -> dict[str, Any]:
    """Attributes of a rollout that has ended."""
    facts = {
        "rl.turns": len(rollout.turns),
        "rl.tokens": rollout.num_generated,
        "rl.stop_reason": rollout.stop_reason.value,
        "rl.reward": rollout.reward,
    }
    return facts if rollout.error is None else {**facts, "error.type": rollout.error.kind}


def _error(message: str, kind: ErrorKind = "infrastructure") -> RolloutError:
    return RolloutError(kind=kind, message=message[:MESSAGE_CHARACTERS])


def _failed(message: str, kind: ErrorKind = "infrastructure") -> Ending:
    return Ending(stop_reason=StopReason.ERROR, error=_error(message, kind))


def _behind_its_turns(failed: Rollout, saved: Rollout | None) -> Rollout:
    """A failed member as its finished turns leave it, so that another attempt continues them.

    Args:
        failed: with what came after them.
        saved: the finished turns; None: there are none.
    """
    if saved is None:
        return failed
    kept = (*OF_THE_ATTEMPT, "error", "continues", "replayed_turns", "program", "environment")
    return saved.model_copy(update={name: getattr(failed, name) for name in kept})


def _rollout(member: Member, ending: Ending, *, task: Task) -> Rollout:
    """The document of a member as it is now."""
    return build_rollout(
        member.trace,
        member.turns,
        replace(
            ending,
            program=member.program,
            environment=member.environment,
            continues=member.continues,
            replayed_turns=member.replayed_turns,
        ),
        task=task,
        member=member.number,
        claimed_at=task.lease_until - LEASE_SECONDS,
    )
