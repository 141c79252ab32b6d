"""Episodes as ATIF trajectories and verifiers traces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.audit import text
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.rollout import (
    RewardPart,
    Rollout,
    RolloutError,
    StopReason,
    TokenRange,
    ToolCall,
    Turn,
    VersionSpan,
)
from rl_contracts.documents.task import Message
from rl_contracts.trajectories.atif import trajectory
from rl_contracts.trajectories.episode import Episode
from rl_contracts.trajectories.verifiers_trace import trace
from tests.samples.documents import a_rollout, a_task

TASK = a_task(
    messages=[Message(role="system", content="Be brief."), Message(role="user", content="1+1=")]
)
CALL = ToolCall(
    tool="add", arguments='{"a": 1, "b": 1}', outcome="answered", result="2", seconds=0.5
)
BROKEN = ToolCall(tool="add", arguments="{a", outcome="refused", result="no JSON", seconds=0.0)


def with_tools(**changes: Any) -> Rollout:
    """Prompt 5 6, a call 7 8, its result 9, the answer 2; an update between 7 and 8."""
    values: dict[str, Any] = {
        "tokens": pack_int32([5, 6, 7, 8, 9, 2]),
        "mask": bytes([0, 0, 1, 1, 0, 1]),
        "logprobs": pack_float32([0, 0, -0.5, -0.25, 0, -1]),
        "spans": [
            VersionSpan(version=3, step=2, start=2, end=3),
            VersionSpan(version=4, step=3, start=3, end=4),
            VersionSpan(version=4, step=3, start=5, end=6),
        ],
        "turns": [
            a_turn((0, 2), (2, 4), "add(1, 1)", calls=[CALL, BROKEN]),
            a_turn((4, 5), (5, 6), "2"),
        ],
        "parts": [RewardPart(scorer="Math", value=1.0, weight=0.5)],
    }
    return a_rollout(TASK, **{**values, **changes})


def a_turn(request: tuple[int, int], response: tuple[int, int], text: str, **more: Any) -> Turn:
    return Turn(
        request=TokenRange(start=request[0], end=request[1]),
        response=TokenRange(start=response[0], end=response[1]),
        stop_reason=StopReason.STOP,
        text=text,
        **more,
    )


TRAINED = Episode(
    rollout=with_tools(),
    task=TASK,
    member=BatchMember(
        rollout="r", advantage=0.0, token_advantages=pack_float32([0.5, 0.25, -0.5])
    ),
    step=4,
)


def test_atif_has_a_step_for_each_message_and_each_turn() -> None:
    made = trajectory(TRAINED, producer="1")
    assert [step["step_id"] for step in made["steps"]] == [1, 2, 3, 4]
    assert [(step["source"], step["message"]) for step in made["steps"]] == [
        ("system", "Be brief."),
        ("user", "1+1="),
        ("agent", "add(1, 1)"),
        ("agent", "2"),
    ]


def test_atif_keeps_what_was_sampled_token_by_token() -> None:
    first, second = (step["metrics"] for step in trajectory(TRAINED, producer="1")["steps"][2:])
    assert (first["prompt_token_ids"], first["completion_token_ids"]) == ([5, 6], [7, 8])
    assert (first["logprobs"], first["extra"]["advantages"]) == ([-0.5, -0.25], [0.5, 0.25])
    assert (second["prompt_token_ids"], second["completion_token_ids"]) == ([5, 6, 7, 8, 9], [2])
    assert second["extra"]["advantages"] == [-0.5]
    made = trajectory(TRAINED, producer="1", tokens=False)["steps"][3]["metrics"]
    assert made == {"prompt_tokens": 5, "completion_tokens": 1}


def test_atif_names_the_policies_of_a_turn() -> None:
    versions = trajectory(TRAINED, producer="1")["steps"][2]["extra"]["policy_versions"]
    assert versions == [
        {"version": 3, "step": 2, "tokens": 1},
        {"version": 4, "step": 3, "tokens": 1},
    ]


def test_atif_joins_calls_and_results_by_id() -> None:
    step = trajectory(TRAINED, producer="1")["steps"][2]
    calls, results = step["tool_calls"], step["observation"]["results"]
    assert [call["tool_call_id"] for call in calls] == [
        result["source_call_id"] for result in results
    ]
    assert calls[0]["arguments"] == {"a": 1, "b": 1}
    assert (calls[1]["arguments"], calls[1]["extra"]) == ({}, {"malformed_arguments": "{a"})


def test_atif_has_what_an_environment_gave_for_each_turn() -> None:
    turns = [
        turn.model_copy(update={"reward": reward})
        for turn, reward in zip(with_tools().turns, (0.25, None), strict=True)
    ]
    episode = Episode(rollout=with_tools(turns=turns), task=TASK)
    first, second = trajectory(episode, producer="1")["steps"][2:]
    assert first["extra"]["reward"] == 0.25
    assert "reward" not in second["extra"]
    assert "          by turns: 0.25, none" in list(text.rollout(episode.rollout, used="unused"))


def test_a_trace_reproduces_the_tokens_along_its_branch() -> None:
    nodes = trace(TRAINED, producer="1")["nodes"]
    assert [node["parent"] for node in nodes] == [None, 0, 1, 2, 3, 4]
    assert [node["message"]["role"] for node in nodes] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert [token for node in nodes for token in node["token_ids"]] == [5, 6, 7, 8, 9, 2]
    assert [bit for node in nodes for bit in node["mask"]] == [
        False,
        False,
        True,
        True,
        False,
        True,
    ]
    sampled = [node for node in nodes if node["sampled"]]
    assert [node["logprobs"] for node in sampled] == [[-0.5, -0.25], [-1.0]]
    assert [node["advantages"] for node in sampled] == [[0.5, 0.25], [-0.5]]


def test_a_discarded_context_begins_another_branch() -> None:
    """The second turn samples after a context of its own: tokens 4 and 5."""
    rollout = with_tools(
        sequence_starts=[4],
        turns=[a_turn((0, 2), (2, 4), "a", calls=[CALL]), a_turn((4, 5), (5, 6), "b")],
    )
    made = trace(Episode(rollout=rollout, task=TASK), producer="1")
    assert [node["parent"] for node in made["nodes"]] == [None, 0, 1, None, 3, 4]
    assert [node["token_ids"] for node in made["nodes"]] == [[], [5, 6], [7, 8], [], [9], [2]]
    steps = trajectory(Episode(rollout=rollout, task=TASK), producer="1")["steps"]
    assert steps[3]["metrics"]["prompt_token_ids"] == [9]


def test_an_episode_without_turns_has_a_turn_for_each_stretch_of_its_tokens() -> None:
    made = trajectory(Episode(rollout=a_rollout(TASK), task=TASK), producer="1")
    assert made["steps"][2]["metrics"]["completion_token_ids"] == [7, 2]
    assert made["steps"][2]["message"] == "2"


@pytest.mark.parametrize("convert", [trajectory, trace])
def test_what_was_never_trained_has_no_advantage(convert: Any) -> None:
    made = json.dumps(convert(Episode(rollout=with_tools(), task=None), producer="1"))
    assert '"advantages": [' not in made
    assert "trained_step" not in made


def test_an_error_makes_a_trace_that_is_not_ok() -> None:
    error = RolloutError(kind="infrastructure", message="the judge is down")
    made = trace(Episode(rollout=with_tools(error=error), task=TASK), producer="1")
    assert (made["ok"], made["errors"]) == (
        False,
        [{"type": "infrastructure", "message": "the judge is down"}],
    )
