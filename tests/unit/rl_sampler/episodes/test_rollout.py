from __future__ import annotations

import base64
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.arrays import pack_int32, unpack_float32, unpack_int32
from rl_contracts.documents.rollout import (
    RewardPart,
    RolloutError,
    StopReason,
    TokenRange,
    Turn,
    VersionSpan,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.task import Queue
from rl_sampler.agents.trace import Trace, version_spans
from rl_sampler.engine.errors import EngineProtocolError
from rl_sampler.engine.protocol import EngineSpan, Generation
from rl_sampler.episodes.rollout import Ending, adopted, build_rollout, is_usable
from tests.samples.documents import a_rollout, a_task


def pointer(version: int, step: int) -> PolicyPointer:
    return PolicyPointer(version=version, epoch=1, step=step, prefix="p/", manifest_sha256="0")


KNOWN = {"4": pointer(4, 3), "5": pointer(5, 4)}


def a_generation(**changes: Any) -> Generation:
    meta = {
        "finish_reason": {"type": "stop", "matched": 2},
        "output_token_logprobs": [[-0.5, 7, None], [-0.25, 2, None]],
        "weight_versions": [{"version": "4", "start": 0, "end": 2}],
        "surprise": 1,
    }
    output = changes.pop("output_ids", [7, 2])
    return Generation.model_validate({"output_ids": output, "meta_info": meta | changes})


def test_rollout_holds_the_trace_token_by_token() -> None:
    task = a_task(attempt=3, owner="me", temperature=0.7)
    trace = Trace()
    trace.restart([5, 6])
    request, response, reason = trace.respond(a_generation(), known=KNOWN)
    assert (request, response) == (TokenRange(start=0, end=2), TokenRange(start=2, end=4))
    turn = Turn(
        request=request,
        response=response,
        stop_reason=reason,
        text="x",
        queue_seconds=1,
        generate_seconds=2,
        tool_seconds=3,
    )
    ending = Ending(
        stop_reason=StopReason.TURNS,
        parts=[RewardPart(scorer="ExactMatch", value=1.0, weight=0.5)],
        score_seconds=4,
    )
    rollout = build_rollout(trace, [turn, turn], ending, task=task, member=1, claimed_at=9.0)
    assert rollout.id == "run1.train.00000000.3.1"
    assert unpack_int32(rollout.tokens) == [5, 6, 7, 2]
    assert rollout.mask == b"\0\0\1\1"
    assert unpack_float32(rollout.logprobs) == [0, 0, -0.5, -0.25]
    assert rollout.spans == [VersionSpan(version=4, epoch=1, step=3, start=2, end=4)]
    assert (reason, rollout.stop_reason) == (StopReason.STOP, StopReason.TURNS)
    assert (rollout.reward, rollout.sampler, rollout.temperature) == (0.5, "me", 0.7)
    assert rollout.oldest_step == 3
    timings = rollout.timings
    assert (timings.queue_seconds, timings.generate_seconds) == (2, 4)
    assert (timings.tool_seconds, timings.score_seconds, timings.claimed_at) == (6, 4, 9)


def test_turns_extend_a_sequence_until_another_begins() -> None:
    trace = Trace()
    trace.restart([5, 6])
    trace.respond(a_generation(), known=KNOWN)
    trace.show([8])
    request, response, _ = trace.respond(a_generation(output_ids=[7, 2]), known=KNOWN)
    assert (request, response) == (TokenRange(start=4, end=5), TokenRange(start=5, end=7))
    assert trace.context == [5, 6, 7, 2, 8, 7, 2]
    trace.restart([5, 7, 2])
    request, response, _ = trace.respond(a_generation(), known=KNOWN)
    assert (request, response) == (TokenRange(start=7, end=10), TokenRange(start=10, end=12))
    assert (trace.context, len(trace)) == ([5, 7, 2, 7, 2], 5)
    assert trace.sequence_starts == [7]
    assert list(trace.mask) == [0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1]
    assert [(span.start, span.end) for span in trace.spans] == [(2, 4), (5, 7), (10, 12)]


def routed(*experts: int) -> str:
    return base64.b64encode(pack_int32(experts)).decode()


def test_experts_are_kept_with_the_tokens_that_passed_them() -> None:
    trace = Trace()
    trace.restart([5, 6])
    trace.respond(a_generation(routed_experts=routed(50, 60, 70)), known=KNOWN, routed=True)
    assert trace.routed == 3, "the last token of a response was not run"
    trace.show([8])
    trace.respond(a_generation(routed_experts=routed(20, 80, 71)), known=KNOWN, routed=True)
    trace.restart([9])
    assert trace.routed == 0
    trace.respond(a_generation(routed_experts=routed(90, 72)), known=KNOWN, routed=True)
    ending = Ending(stop_reason=StopReason.STOP)
    rollout = build_rollout(trace, [], ending, task=a_task(), member=0, claimed_at=1.0)
    assert rollout.routing is not None
    assert (rollout.routing.items, rollout.routing.item_bytes) == (1, 1)
    assert list(rollout.routing.data) == [50, 60, 70, 20, 80, 71, 255, 90, 72, 255]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "returned no choices of experts"),
        ({"routed_experts": routed(1, 2)}, "not equally many numbers for 3 tokens"),
        ({"routed_experts": routed(1, 2, -1)}, "negative"),
        ({"routed_experts": "%"}, "unusable"),
    ],
)
def test_missing_or_malformed_experts_are_a_protocol_error(
    changes: dict[str, Any], message: str
) -> None:
    trace = Trace()
    trace.restart([5, 6])
    with pytest.raises(EngineProtocolError, match=message):
        trace.respond(a_generation(**changes), known=KNOWN, routed=True)
    assert trace.routing == []


def test_refused_response_leaves_the_trace_unchanged() -> None:
    trace = Trace()
    trace.restart([5, 6])
    with pytest.raises(EngineProtocolError):
        trace.respond(a_generation(weight_versions=[]), known=KNOWN)
    assert (trace.tokens, list(trace.mask), trace.spans) == ([5, 6], [0, 0], [])


def test_failed_member_is_stored_but_never_usable() -> None:
    error = RolloutError(kind="infrastructure", message="no tool")
    ending = Ending(stop_reason=StopReason.ERROR, error=error)
    task = a_task(attempt=2)
    rollout = build_rollout(Trace(), [], ending, task=task, member=0, claimed_at=1.0)
    assert (rollout.num_tokens, rollout.reward, rollout.oldest_step) == (0, 0.0, -1)
    assert not is_usable(rollout, task=task, oldest_step=-9)
    good = a_rollout(task, 0).model_copy(update={"error": error})
    assert not is_usable(good, task=task, oldest_step=-9)
    assert adopted([rollout, good], task=task, oldest_step=-9) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finish_reason": {"type": "abort"}}, "aborted"),
        ({"output_ids": []}, "0 response tokens"),
        ({"output_ids": [7, 3]}, "are not those of the"),
        ({"output_ids": [7, 2, 2]}, "are not those of the"),
        (
            {"output_token_logprobs": [[float("nan"), 7, None], [-1, 2, None]]},
            "positive or non-finite",
        ),
        (
            {"output_token_logprobs": [[float("-inf"), 7, None], [-1, 2, None]]},
            "positive or non-finite",
        ),
        ({"output_token_logprobs": [[0.5, 7, None], [-1, 2, None]]}, "positive or non-finite"),
        ({"weight_versions": [{"version": "base", "start": 0, "end": 2}]}, "'base'"),
        ({"weight_versions": [{"version": "4", "start": 0, "end": 1}]}, "1 of 2"),
        ({"weight_versions": []}, "0 of 2"),
    ],
)
def test_malformed_generation_raises_a_protocol_error(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineProtocolError, match=message):
        Trace().respond(a_generation(**changes), known=KNOWN)


@pytest.mark.parametrize(
    ("engine_spans", "wanted"),
    [
        ([("4", 0, 5)], [(4, 3, 2, 7)]),
        ([("4", 0, 2), ("5", 2, 5)], [(4, 3, 2, 4), (5, 4, 4, 7)]),
        ([("4", 0, 2), ("4", 2, 5)], [(4, 3, 2, 7)]),
    ],
)
def test_version_spans_are_shifted_and_merged(
    engine_spans: list[tuple[str, int, int]], wanted: list[tuple[int, int, int, int]]
) -> None:
    spans = version_spans(
        [EngineSpan(version=v, start=a, end=b) for v, a, b in engine_spans],
        start=2,
        output=5,
        known=KNOWN,
    )
    assert [(span.version, span.step, span.start, span.end) for span in spans] == wanted


@pytest.mark.parametrize(
    "engine_spans",
    [
        [("4", 1, 5)],
        [("4", 0, 2), ("5", 3, 5)],
        [("4", 0, 3), ("5", 2, 5)],
        [("4", 0, 0), ("5", 0, 5)],
        [("4", 0, 6)],
    ],
)
def test_version_spans_with_gaps_or_overlaps_are_refused(
    engine_spans: list[tuple[str, int, int]],
) -> None:
    with pytest.raises(EngineProtocolError):
        version_spans(
            [EngineSpan(version=v, start=a, end=b) for v, a, b in engine_spans],
            start=2,
            output=5,
            known=KNOWN,
        )


@given(
    prompt=st.integers(1, 20),
    parts=st.lists(st.tuples(st.sampled_from(["4", "5"]), st.integers(1, 9)), min_size=1),
)
def test_version_spans_cover_every_generated_token_once(
    prompt: int, parts: list[tuple[str, int]]
) -> None:
    engine_spans, position = [], 0
    for version, length in parts:
        engine_spans.append(EngineSpan(version=version, start=position, end=position + length))
        position += length
    spans = version_spans(engine_spans, start=prompt, output=position, known=KNOWN)
    labels = [span.version for span in spans for _ in range(span.start, span.end)]
    assert labels == [int(version) for version, length in parts for _ in range(length)]
    assert spans[0].start == prompt
    assert all(span.version != other.version for span, other in itertools.pairwise(spans))


def spans_of(*versions: tuple[int, int]) -> list[VersionSpan]:
    return [
        VersionSpan(version=version, step=step, start=at, end=at + 1)
        for at, (version, step) in enumerate(versions, start=2)
    ]


def test_oldest_token_decides_whether_a_member_is_usable() -> None:
    task = a_task()
    rollout = a_rollout(task, spans=spans_of((4, 3), (5, 4)))
    assert is_usable(rollout, task=task, oldest_step=3)
    assert not is_usable(rollout, task=task, oldest_step=4)


def test_evaluation_member_is_usable_only_for_its_version() -> None:
    task = a_task(queue=Queue.EVALUATION, evaluation_version=5)
    assert is_usable(a_rollout(task, spans=spans_of((5, 4))), task=task, oldest_step=99)
    assert not is_usable(a_rollout(task, spans=spans_of((4, 3), (5, 4))), task=task, oldest_step=0)
    assert not is_usable(a_rollout(task, spans=spans_of((4, 3))), task=task, oldest_step=0)


def test_usable_members_of_earlier_attempts_are_adopted() -> None:
    task = a_task(attempt=3, group_size=3)
    first, second = (task.model_copy(update={"attempt": attempt}) for attempt in (1, 2))
    rollouts = [
        a_rollout(second, 0, spans=spans_of((5, 4))),
        a_rollout(first, 0, spans=spans_of((4, 3))),
        a_rollout(first, 1, spans=spans_of((1, 0))),
        a_rollout(first, 2, spans=spans_of((4, 3))),
        a_rollout(first, 7, spans=spans_of((4, 3))),
    ]
    members = adopted(rollouts, task=task, oldest_step=3)
    assert {number: rollout.attempt for number, rollout in members.items()} == {0: 2, 2: 1}


def test_old_members_are_adopted_for_their_rewards_while_others_can_be_trained() -> None:
    task = a_task(attempt=2, group_size=3)
    earlier = task.model_copy(update={"attempt": 1})
    old = [a_rollout(earlier, member, spans=spans_of((1, 0))) for member in range(3)]
    assert adopted(old, task=task, oldest_step=3, withhold=True) == {}, "nothing could be trained"
    assert adopted(old[:2], task=task, oldest_step=3) == {}
    usable = adopted(old[:2], task=task, oldest_step=3, withhold=True)
    assert sorted(usable) == [0, 1], "the third is sampled again"
    young = a_rollout(earlier, 2, spans=spans_of((5, 4)))
    assert sorted(adopted([*old[:2], young], task=task, oldest_step=3, withhold=True)) == [0, 1, 2]
