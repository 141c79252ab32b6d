"""Rollout documents: what the engine sampled, token by token, never re-tokenized."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_contracts import ids
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import (
    RewardPart,
    Rollout,
    StopReason,
    Timings,
    VersionSpan,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.task import Queue, Task
from rl_sampler.engine.errors import EngineProtocolError
from rl_sampler.engine.protocol import EngineSpan, Generation
from rl_sampler.scorers import total

STOP_REASONS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One member's checked token trace."""

    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float]
    """Of the output."""
    spans: list[VersionSpan]
    """Over prompt and output together."""
    stop_reason: StopReason


def checked_trace(
    generation: Generation, *, prompt: Sequence[int], known: Mapping[str, PolicyPointer]
) -> Trace:
    """Take over what the engine sampled.

    Args:
        generation: the engine's answer for one member.
        prompt: token ids that were sent.
        known: published policies that the engine was given, by label.

    Raises:
        EngineProtocolError: it was aborted, or a token lacks a finite log-probability or a
            published policy: an infrastructure error.
    """
    reason = STOP_REASONS.get(generation.meta_info.finish_reason.type)
    if reason is None:
        raise EngineProtocolError("the engine aborted a member")
    output, meta = generation.output_ids, generation.meta_info
    if not output or [token for _, token, _ in meta.output_token_logprobs] != output:
        raise EngineProtocolError(
            f"log-probabilities do not belong to the {len(output)} tokens of the response"
        )
    logprobs = [logprob for logprob, _, _ in meta.output_token_logprobs]
    if not all(math.isfinite(one) and one <= 0.0 for one in logprobs):
        raise EngineProtocolError("a log-probability is not finite or is positive")
    return Trace(
        prompt=prompt,
        output=output,
        logprobs=logprobs,
        spans=version_spans(
            meta.weight_versions, prompt=len(prompt), output=len(output), known=known
        ),
        stop_reason=reason,
    )


def version_spans(
    found: Sequence[EngineSpan], *, prompt: int, output: int, known: Mapping[str, PolicyPointer]
) -> list[VersionSpan]:
    """Turn the engine's spans over output tokens into spans over all tokens.

    Args:
        found: half-open, in order.
        prompt: number of prompt tokens.
        output: number of output tokens, which the spans must cover exactly.
        known: published policies by label.

    Raises:
        EngineProtocolError: a gap, an overlap, or tokens of a policy that was never published.
    """
    spans: list[VersionSpan] = []
    position = 0
    for one in found:
        policy = known.get(one.version)
        if policy is None:
            raise EngineProtocolError(
                f"tokens were sampled by weights {one.version!r}, which nobody published"
            )
        if one.start != position or one.end <= one.start:
            raise EngineProtocolError(f"spans of versions have a gap or overlap at {position}")
        position = one.end
        end = prompt + one.end
        if spans and spans[-1].version == policy.version:
            spans[-1] = spans[-1].model_copy(update={"end": end})
            continue
        spans.append(
            VersionSpan(version=policy.version, step=policy.step, start=prompt + one.start, end=end)
        )
    if position != output:
        raise EngineProtocolError(f"spans of versions cover {position} of {output} tokens")
    return spans


def build_rollout(
    trace: Trace, *, task: Task, member: int, text: str, parts: list[RewardPart], timings: Timings
) -> Rollout:
    """The document of one sampled and scored member of a claim."""
    prompt, output = len(trace.prompt), len(trace.output)
    return Rollout(
        id=ids.rollout_id(ids.TaskId(task.id), task.attempt, member),
        run=task.run,
        task=task.id,
        attempt=task.attempt,
        member=member,
        sampler=task.owner,
        temperature=task.temperature,
        tokens=pack_int32([*trace.prompt, *trace.output]),
        mask=bytes(prompt) + b"\x01" * output,
        logprobs=pack_float32([*([0.0] * prompt), *trace.logprobs]),
        spans=trace.spans,
        text=text,
        stop_reason=trace.stop_reason,
        reward=total(parts),
        parts=parts,
        timings=timings,
    )


def is_usable(rollout: Rollout, *, task: Task, oldest_step: int) -> bool:
    """Whether a finished member may become data.

    Args:
        rollout: the member.
        task: what it was sampled for.
        oldest_step: training: the oldest policy step that can still be trained.
    """
    if task.queue is Queue.EVALUATION:
        return {span.version for span in rollout.spans} == {task.evaluation_version}
    return rollout.oldest_step >= oldest_step


def adopted(found: Sequence[Rollout], *, task: Task, oldest_step: int) -> dict[int, Rollout]:
    """Members that earlier attempts finished, by their number; of several the latest."""
    usable = {}
    for rollout in sorted(found, key=lambda one: one.attempt):
        if rollout.member < task.group_size and is_usable(
            rollout, task=task, oldest_step=oldest_step
        ):
            usable[rollout.member] = rollout
    return usable
