"""Messages of OpenEnv's WebSocket (0.3 to 0.10), and what an answer means. Pure.

Each request ``{type, data}`` has one answer. Answers have no number that names their request, so a
session in which one answer was missed can never be used again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_contracts.errors import RLError
from rl_sampler.tasks.claims import LostError
from rl_sampler.tools.tool import ToolDownError

MESSAGE_CHARACTERS = 300
"""Of an error of the server, in a message."""
LARGEST_REWARD = 1e9
"""Of one step, so that sums stay finite."""
OF_THE_FORM = ("missing", "extra_forbidden")
"""Errors of a field that every action has or lacks, whatever the policy wrote into it."""


class EnvironmentDownError(ToolDownError):
    """The environment does not answer, or answers with an error: never a reward."""


class EnvironmentUnreachableError(EnvironmentDownError):
    """No connection to the server came about."""


class EnvironmentLostError(EnvironmentDownError, LostError):
    """The server has ended, or its connection, in the middle of an episode."""


class EnvironmentBusyError(RLError):
    """The server has no room for another session now."""


class ActionRefusedError(RLError):
    """The server did not take an action, and no step was made."""

    def __init__(self, message: str, *, by_form: bool) -> None:
        """Make the error.

        Args:
            message: the server's errors.
            by_form: the action lacks a field or has one too many; its values were not the cause.
        """
        super().__init__(message)
        self.by_form = by_form


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Message(_Answer):
    type: str
    data: dict[str, Any] = Field(default_factory=dict)


class _Step(_Answer):
    observation: Any = None
    reward: float | None = None
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The environment's answer to a reset or a step."""

    observation: Any
    """As JSON; most servers send an object."""
    reward: float | None = None
    """Of this step, at most LARGEST_REWARD in size; None: the environment gave none."""
    done: bool = False
    """The episode is over."""
    truncated: bool = False
    """It is over at a limit of the environment's own, not by its goal or failure."""


def request(kind: Literal["reset", "step", "state", "close"], data: Any = None) -> str:
    """A message to the server, in ASCII."""
    return json.dumps({"type": kind} if data is None else {"type": kind, "data": data})


def read(text: str, *, expected: Literal["observation", "state"]) -> dict[str, Any]:
    """The data of an answer.

    Raises:
        EnvironmentBusyError: there is no room for another session.
        ActionRefusedError: the action does not fit the environment's schema.
        EnvironmentDownError: any other error, and anything that is no answer to the request.
    """
    message = _message(text)
    if message.type == "error":
        raise _error(message.data)
    if message.type != expected:
        raise EnvironmentDownError(
            f"the environment answered with {message.type[:40]!r}, and {expected!r} was due"
        )
    return message.data


def is_error(text: str) -> bool:
    """Whether a message is an error; raises EnvironmentDownError."""
    return _message(text).type == "error"


def _message(text: str) -> _Message:
    try:
        return _Message.model_validate(json.loads(text))
    except (ValidationError, ValueError, RecursionError) as error:
        raise EnvironmentDownError("the environment's answer is no message of OpenEnv") from error


def seen(data: Mapping[str, Any]) -> Seen:
    """The meaning of an observation's data; raises EnvironmentDownError."""
    try:
        step = _Step.model_validate(data)
    except ValidationError as error:
        raise EnvironmentDownError("the environment's reward or done has no such type") from error
    if step.reward is not None and not abs(step.reward) <= LARGEST_REWARD:  # NaN is not
        raise EnvironmentDownError(f"the environment gave the reward {step.reward}")
    return Seen(
        observation=step.observation,
        reward=step.reward,
        done=step.done,
        truncated=step.done and _truncated(data, step.observation),
    )


def _truncated(data: Mapping[str, Any], observation: Any) -> bool:
    """OpenEnv has only ``done``; servers say ``truncated``, as Gymnasium does, in one of these."""
    places = [data, data.get("metadata"), observation]
    if isinstance(observation, Mapping):
        places.append(observation.get("metadata"))
    return any(isinstance(place, Mapping) and place.get("truncated") is True for place in places)


def _error(data: Mapping[str, Any]) -> RLError:
    code, message = storable(str(data.get("code", "")))[:40], storable(str(data.get("message", "")))
    if code == "CAPACITY_REACHED":
        return EnvironmentBusyError(message[:MESSAGE_CHARACTERS])
    if code == "VALIDATION_ERROR":
        errors = data.get("errors")
        entries = errors if isinstance(errors, list) else []
        listed = [each for each in entries if isinstance(each, Mapping)]
        return ActionRefusedError(
            storable("; ".join(map(_line, listed)) or message)[:MESSAGE_CHARACTERS],
            by_form=bool(listed) and all(each.get("type") in OF_THE_FORM for each in listed),
        )
    return EnvironmentDownError(
        f"the environment failed: {code or 'error'}: {message[:MESSAGE_CHARACTERS]}"
    )


def storable(text: str) -> str:
    """A text of the server without halves of surrogate pairs, which JSON allows and no store."""
    return text.encode(errors="replace").decode()


def _line(error: Mapping[str, Any]) -> str:
    place = error.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{where}: {error.get('msg', 'is not valid')}"
