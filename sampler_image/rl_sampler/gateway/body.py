"""Reads the fields of a request's body; each is used, ignored by name, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from rl_sampler.gateway.asked import Message, RefusedRequestError
from rl_sampler.tools.tool import Tool

T = TypeVar("T")

MOST_STOPS, STOP_CHARACTERS = 16, 256
MOST_TOOLS = 128
MOST_NAMED, NAME_CHARACTERS = 8, 64
"""Of the fields of a message that have no effect, and of their names."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
JSON_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class Body:
    """An object of a request; ``null`` counts as missing."""

    def __init__(self, values: object, *, at: str = "") -> None:
        """Read an object.

        Args:
            values: parsed JSON.
            at: where it is in the request, for messages.

        Raises:
            RefusedRequestError: it is no object.
        """
        if not isinstance(values, dict):
            raise RefusedRequestError(f"{at or 'the body'} must be an object", parameter=at or None)
        self._at = f"{at}." if at else ""
        self._null = {name for name, value in values.items() if value is None}
        self._left = {name: value for name, value in values.items() if value is not None}

    def take(self, name: str, kind: type[T], default: T) -> T:
        """A field's value; raises RefusedRequestError where it has another type."""
        value = self._left.pop(name, default)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.refuse(name, f"must be {JSON_NAMES[kind]}")

    def required(self, name: str, kind: type[T]) -> T:
        """A field's value; raises RefusedRequestError where it is missing."""
        if name not in self._left:
            self.refuse(name, "is missing")
        given: T = self._left[name]
        return self.take(name, kind, given)

    def any(self, name: str, *, missing: object = None) -> Any:
        """A field's value of any type, also null; ``missing`` where the body lacks it."""
        return self._left.pop(name, None if name in self._null else missing)

    def count(self, name: str, default: int | None, *, most: int) -> int | None:
        """A field's value, which must be in [1, most]."""
        if name not in self._left:
            return default
        value = self.take(name, int, 0)
        if not 1 <= value <= most:
            self.refuse(name, f"must be between 1 and {most}")
        return value

    def ignore(self, names: Collection[str]) -> tuple[str, ...]:
        """Drop fields that have no effect; returns those that were given."""
        given = tuple(sorted(names & self._left.keys()))
        for name in given:
            del self._left[name]
        return given

    def only(self, name: str, allowed: Sequence[object], why: str) -> None:
        """Refuse a field that has another value than these."""
        value = self._left.pop(name, allowed[0])
        if value not in allowed:
            self.refuse(name, why)

    def end(self) -> None:
        """Refuse fields that were not read."""
        for name in self._left:
            self.refuse(name, "is not supported here: remove it")

    def rest(self, refused: Collection[str]) -> set[str]:
        """Names of the fields that were not read, for the rollout.

        Args:
            refused: those that would change what the policy is shown; refused unless empty.
        """
        for name in refused:
            if self._left.get(name):
                self.refuse(name, "is not supported here: remove it")
        named = sorted(self._left.keys() - refused)[:MOST_NAMED]
        return {f"messages.{name[:NAME_CHARACTERS]}" for name in named}

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raise RefusedRequestError for a field."""
        raise RefusedRequestError(f"{self._at}{name} {why}", parameter=f"{self._at}{name}")


def stop_texts(body: Body, name: str) -> tuple[str, ...]:
    """A field with a text, or a list of texts, that end a response."""
    given = body.any(name)
    stops = [given] if isinstance(given, str) else given or []
    good = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not good or not all(
        isinstance(stop, str) and len(stop) <= STOP_CHARACTERS for stop in stops
    ):
        body.refuse(
            name, f"must be up to {MOST_STOPS} texts of at most {STOP_CHARACTERS} characters"
        )
    return tuple(stop for stop in stops if stop)


def tool_of(name: object, description: object, parameters: object, *, at: str) -> Tool:
    """A tool that a request offers; raises RefusedRequestError."""
    named = isinstance(name, str) and name and isinstance(description or "", str)
    schema = parameters or {}
    if not named or not isinstance(schema, dict):
        raise RefusedRequestError(
            f"{at} needs a name, a description that is text, and parameters that are an object",
            parameter=at,
        )
    return Tool(name=str(name), description=str(description or ""), parameters=schema)


def text_of(content: object, *, kinds: Collection[str], at: str) -> str:
    """The text of a message's content: a string, or parts that are all text.

    Args:
        content: of the message; None is empty.
        kinds: types of parts that are text.
        at: where it is in the request.

    Raises:
        RefusedRequestError: a part is an image, a file or another thing that the policy cannot be
            shown.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RefusedRequestError(f"{at} must be a string or a list of parts", parameter=at)
    parts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if kind in kinds else None
        if not isinstance(text, str):
            raise RefusedRequestError(
                f"{at}[{index}] is of type {kind!r}: this policy reads text only",
                parameter=f"{at}[{index}]",
            )
        parts.append(text)
    return "".join(parts)


def result_of(call_id: object, names: Mapping[str, str], text: str, *, at: str) -> Message:
    """The message with a tool's result.

    Args:
        call_id: of the call.
        names: tools by the ids of earlier calls.
        text: the result.
        at: where it is in the request.

    Raises:
        RefusedRequestError: no earlier message of the policy has this call.
    """
    if not isinstance(call_id, str) or call_id not in names:
        raise RefusedRequestError(
            f"{at} is the result of call {call_id!r}, which no message before it has", parameter=at
        )
    return Message(role="tool", text=text, call_id=call_id, tool=names[call_id])


def check_turns(messages: Sequence[Message], *, parameter: str) -> None:
    """Refuse a conversation that leaves the policy nothing to answer."""
    if not messages:
        raise RefusedRequestError(f"{parameter} must not be empty", parameter=parameter)
    if messages[-1].role == "assistant":
        raise RefusedRequestError(
            f"the last of {parameter} is the policy's own: a response cannot be begun for it",
            parameter=parameter,
        )


def parsed_body(data: bytes) -> object:
    """The JSON of a request; raises RefusedRequestError."""
    try:
        text = data.decode()
        parsed: object = json.loads(text)
        if SURROGATE.search(text):  # half of a pair cannot be tokenized
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise RefusedRequestError(f"the body has a character that is not valid: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RefusedRequestError(f"the body is not JSON: {error}") from error
    return parsed
