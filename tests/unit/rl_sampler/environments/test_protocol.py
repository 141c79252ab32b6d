from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.errors import RLError
from rl_sampler.environments import actions, protocol
from rl_sampler.environments.protocol import (
    ActionRefusedError,
    EnvironmentBusyError,
    EnvironmentDownError,
)

MCP_RESULT = {"content": [{"type": "text", "text": "x"}, {"type": "image"}]}


@pytest.mark.parametrize(
    ("data", "truncated"),
    [
        ({"observation": {}, "done": True}, False),
        ({"observation": {}, "done": True, "truncated": True}, True),
        ({"observation": {}, "done": True, "metadata": {"truncated": True}}, True),
        ({"observation": {"truncated": True}, "done": True}, True),
        ({"observation": {"metadata": {"truncated": True}}, "done": True}, True),
        ({"observation": {"truncated": "yes"}, "done": True}, False),
        ({"observation": {"truncated": True}, "done": False}, False),
        ({"observation": "text", "done": True}, False),
    ],
)
def test_truncation_is_what_the_server_calls_so(data: dict[str, Any], truncated: bool) -> None:
    assert protocol.seen(data).truncated is truncated


@pytest.mark.parametrize(("sent", "reward"), [(True, 1.0), (0, 0.0), (None, None), (-2.5, -2.5)])
def test_rewards_are_any_finite_number(sent: object, reward: float | None) -> None:
    assert protocol.seen({"reward": sent}).reward == reward


@pytest.mark.parametrize("sent", [float("nan"), float("inf"), -1e300, "much", [1]])
def test_what_is_no_number_is_no_reward(sent: object) -> None:
    with pytest.raises(EnvironmentDownError):
        protocol.seen({"reward": sent})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"code": "CAPACITY_REACHED"}, EnvironmentBusyError),
        ({"code": "VALIDATION_ERROR"}, ActionRefusedError),
        ({"code": "EXECUTION_ERROR", "message": "x"}, EnvironmentDownError),
        ({"code": "SESSION_ERROR"}, EnvironmentDownError),
        ({}, EnvironmentDownError),
    ],
)
def test_errors_are_told_apart_by_their_code(
    data: dict[str, Any], expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        protocol.read(json.dumps({"type": "error", "data": data}), expected="observation")


@pytest.mark.parametrize(
    ("kinds", "by_form"),
    [
        (["missing"], True),
        (["missing", "extra_forbidden"], True),
        (["missing", "int_type"], False),
        ([], False),
    ],
)
def test_a_missing_field_is_the_forms_fault(kinds: list[str], by_form: bool) -> None:
    errors = [{"type": kind, "loc": ["a", 0], "msg": "no"} for kind in kinds]
    data = {"code": "VALIDATION_ERROR", "message": "Invalid", "errors": errors}
    with pytest.raises(ActionRefusedError) as caught:
        protocol.read(json.dumps({"type": "error", "data": data}), expected="observation")
    assert caught.value.by_form is by_form
    assert ("a.0: no" if kinds else "Invalid") in str(caught.value)


@pytest.mark.parametrize("code", ["VALIDATION_ERROR", "EXECUTION_ERROR"])
def test_an_error_with_half_of_a_surrogate_pair_can_be_stored(code: str) -> None:
    data = {"code": code, "message": "a\ud800"}
    with pytest.raises(RLError, match=r"a\?$"):
        protocol.read(json.dumps({"type": "error", "data": data}), expected="observation")


@pytest.mark.parametrize("text", ["", "7", "[]", "null", '{"data": {}}', '{"type": 1}'])
def test_other_messages_are_refused(text: str) -> None:
    with pytest.raises(EnvironmentDownError, match="no message of OpenEnv"):
        protocol.read(text, expected="observation")


@pytest.mark.parametrize(
    ("observation", "field", "text"),
    [
        ("plain", None, "plain"),
        (None, None, ""),
        ({}, None, ""),
        ({"text": "one", "metadata": {"a": 1}, "error": None}, None, "one"),
        ({"rows": [1, 2]}, None, '{"rows": [1, 2]}'),
        ({"a": "x", "b": "ü"}, None, '{"a": "x", "b": "ü"}'),
        ({"a": "x", "b": "y"}, "b", "y"),
        ({"a": [1]}, "a", "[1]"),
        ({"a": "\ud800"}, None, "?"),
        ({"tool_name": "t", "result": 7, "error": None}, None, "7"),
        ({"tool_name": "t", "result": MCP_RESULT}, None, "x\n[left out: no text]"),
    ],
)
def test_an_observation_is_shown_as_text(observation: Any, field: str | None, text: str) -> None:
    assert actions.shown(observation, field) == text


def test_a_tools_failure_is_the_policys_to_see_but_not_a_broken_connection() -> None:
    observation = {"tool_name": "t", "error": {"error_type": "invalid_args", "message": "no"}}
    assert actions.tool_error(observation) == "no"
    observation["error"] = {"error_type": "timeout", "message": "timed out after 30.0 seconds"}
    assert actions.tool_error(observation) == "timed out after 30.0 seconds"
    assert actions.tool_error({"tool_name": "t", "error": None}) == ""
    observation["error"] = {"error_type": "transport_error", "message": "gone"}
    with pytest.raises(EnvironmentDownError, match="gone"):
        actions.tool_error(observation)
