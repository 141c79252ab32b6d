"""Parses a record by its columns into an example."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeGuard, get_args

from rl_contracts.documents.datasets import image_sources
from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.task import ContentPart, ImagePart, Message, Part
from rl_contracts.spec.data import Columns, Images
from rl_contracts.spec.reward import AnswerSchema, named_like

SHOWN_CHARACTERS = 120
MAX_ID_CHARACTERS = 256
MAX_SCORER_CHARACTERS = 64
MAX_FIELDS_CHARACTERS = 65_536
"""Of all fields of a record that the user's code is given, as JSON."""
SCORER = re.compile(r"[A-Za-z][A-Za-z0-9]*")
ANSWER_SCHEMAS = get_args(AnswerSchema)
SEEN = ("user", "tool")
"""Roles whose messages may have images."""
ROLES = ("system", "developer", "user", "assistant", "tool")

Values = Mapping[str, object]
Compares = Callable[[str], bool]


class BadRecordError(ValueError):
    """A record is invalid; the message names the field."""


def parse_record(
    record: object,
    *,
    columns: Columns,
    place: str,
    compares: Compares = lambda scorer: True,
    images: Images | None = None,
) -> Example:
    """Parse a record.

    Args:
        record: the decoded JSON value.
        columns: which field holds which part.
        place: id of a record that has none, e.g. ``line 7``.
        compares: whether a record that names a scorer, or none (empty), needs a reference.
        images: the manifest's limits; None: records have none.

    Raises:
        BadRecordError: a field is missing or has a wrong type or value.
    """
    if not isinstance(record, Mapping):
        raise BadRecordError("is not a JSON object")
    scorer = _scorer(record, columns.scorer)
    needed = compares(scorer)
    if columns.messages is None:
        query = _text(record, columns.query or "query")
        messages: tuple[Message, ...] = (Message(role="user", content=query),)
        answer = _answer(record, columns.answer or "answer", needed=needed)
    else:
        messages, answer = _conversation(
            record, columns.messages, columns.answer, answer_needed=needed, images=images
        )
    return Example(
        id=_id(record, columns, place),
        messages=messages,
        answer=answer,
        scorer=scorer,
        answer_schema=_answer_schema(record, columns.answer_schema),
        scenario=_scenario(record, columns.scenario),
        fields=_fields(record, columns.fields),
    )


def _id(record: Values, columns: Columns, place: str) -> str:
    if columns.id is None and record.get("id") is None:
        return place
    column = columns.id or "id"
    identifier = _text(record, column)
    if len(identifier) > MAX_ID_CHARACTERS:
        _refuse(column, f"has {len(identifier)} characters, more than {MAX_ID_CHARACTERS}")
    return identifier


def _scorer(record: Values, column: str | None) -> str:
    if column is None or record.get(column) is None:
        return ""
    name = _text(record, column)
    if len(name) > MAX_SCORER_CHARACTERS or not SCORER.fullmatch(name):
        _refuse(column, f"is {_shown(name)}, which cannot be the name of a scorer")
    return name


def _answer_schema(record: Values, column: str | None) -> str:
    if column is None or record.get(column) is None:
        return ""
    name = _text(record, column)
    schema = named_like(name, ANSWER_SCHEMAS)
    if schema is None:
        _refuse(column, f"is {_shown(name)}, not one of {', '.join(ANSWER_SCHEMAS)}")
    return schema


def _scenario(record: Values, column: str | None) -> tuple[str, ...]:
    if column is None:
        return ()
    value = record.get(column)
    if not _is_list(value):
        return (_text(record, column),)
    turns = [_text({column: turn}, column) for turn in value]
    if not turns:
        _refuse(column, "has no user turn")
    return tuple(turns)


def _fields(record: Values, names: Sequence[str]) -> str:
    """The named fields that a record has, as a JSON object; empty: none."""
    given = {name: record[name] for name in names if record.get(name) is not None}
    if not given:
        return ""
    for name, value in given.items():
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            _refuse(name, f"is {_shown(value)} that JSON cannot hold")
        _clean(text, name)
    written = json.dumps(given, ensure_ascii=False)
    if len(written) > MAX_FIELDS_CHARACTERS:
        _refuse(
            names[0],
            f"and the others of columns.fields have {len(written)} characters, more "
            f"than {MAX_FIELDS_CHARACTERS}",
        )
    return written


def named(columns: Columns) -> dict[str, str]:
    """The columns that a manifest names, each with the field of ``columns`` that names it."""
    given = columns.model_dump(by_alias=True, exclude_none=True)
    fields = {column: f"fields[{at}]" for at, column in enumerate(given.pop("fields", ()))}
    return fields | {column: field for field, column in given.items()}


def columns_of(columns: Columns, *, compares: Compares) -> tuple[list[str], list[str]]:
    """Columns that every record must have, and optional ones; ``compares`` as ``parse_record``."""
    answer = columns.answer
    if columns.messages is None:
        needed, answer = [columns.query or "query"], answer or "answer"
    else:
        needed = [columns.messages]
    if compares("") and columns.scorer is None and answer:
        needed.append(answer)
    needed += [column for column in (columns.id, columns.scenario) if column]
    others = [answer, columns.scorer, columns.answer_schema, None if columns.id else "id"]
    optional = dict.fromkeys(name for name in (*others, *columns.fields) if name)
    return needed, [name for name in optional if name not in needed]


def _conversation(
    record: Values,
    column: str,
    answer: str | None,
    *,
    answer_needed: bool,
    images: Images | None,
) -> tuple[tuple[Message, ...], str]:
    """The messages up to the last user turn, and the reference answer.

    The reference is the last assistant turn after them, unless a column holds it.
    """
    turns = [
        _message(turn, f"{column}[{at}]", images) for at, turn in enumerate(_list(record, column))
    ]
    asked = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=-1)
    if asked < 0:
        _refuse(column, "has no user turn")
    if answer is not None:
        return tuple(turns[: asked + 1]), _answer(record, answer, needed=answer_needed)
    replies = [turn.text for turn in turns[asked + 1 :] if turn.role == "assistant"]
    if not replies and not answer_needed:
        return tuple(turns[: asked + 1]), ""
    if not replies or not replies[-1]:
        _refuse(
            column, "has no assistant turn after the last user turn, and no answer column is set"
        )
    return tuple(turns[: asked + 1]), replies[-1]


def _message(value: object, field: str, images: Images | None) -> Message:
    if not isinstance(value, Mapping):
        _refuse(field, f"is {_shown(value)}, not a message")
    # Parquet sets fields that only other rows have to None.
    written = {key: item for key, item in value.items() if item is not None}
    role = written.pop("role", None)
    if role not in ROLES:
        _refuse(f"{field}.role", f"is {_shown(role)}, not one of {', '.join(ROLES)}")
    content = written.pop("content", None)
    if written:
        _refuse(f"{field}.{next(iter(written))}", "is not supported in a message")
    message = Message(role=str(role), content=_content(content, f"{field}.content", images))
    if role not in SEEN and message.images:
        _refuse(f"{field}.content", f"has an image, and role {role} cannot show one")
    if role == "user" and not message.text and not message.images:
        _refuse(f"{field}.content", "is empty")
    return message


def _content(content: object, field: str, images: Images | None) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (ContentPart(text=_clean(content, field)),)
    if not _is_list(content):
        _refuse(field, f"is {_shown(content)}, not a text")
    return tuple(_part(part, f"{field}[{at}]", images) for at, part in enumerate(content))


def _part(value: object, field: str, images: Images | None) -> Part:
    if not isinstance(value, Mapping):
        _refuse(field, f"is {_shown(value)}, not a part of a message")
    written = {key: item for key, item in value.items() if item is not None}
    kind = written.get("type")
    if kind in image_sources.KINDS:
        return _image(written, str(kind), field, images)
    if kind != "text":
        known = ", ".join(("text", *image_sources.KINDS))
        _refuse(f"{field}.type", f"is {_shown(kind)}, not one of {known}")
    text = written.get("text")
    if not isinstance(text, str):
        _refuse(f"{field}.text", f"is {_shown(text)}, not a text")
    return ContentPart(text=_clean(text, f"{field}.text"))


def _image(written: Values, kind: str, field: str, images: Images | None) -> ImagePart:
    if images is None:
        _refuse(f"{field}.type", f"is {kind}: set spec.data.images to show images")
    named = written.get(kind)
    if isinstance(named, Mapping):  # OpenAI's form
        named = named.get("url")
    if not isinstance(named, str) or not named:
        _refuse(f"{field}.{kind}", f"is {_shown(named)}, not the address of an image")
    problem = image_sources.problem(named, images)
    if problem:
        _refuse(f"{field}.{kind}", problem)
    return ImagePart(source=_clean(named, f"{field}.{kind}"))


def _list(record: Values, column: str) -> Sequence[object]:
    value = record.get(column)
    if value is None:
        _refuse(column, "is missing")
    if not _is_list(value):
        _refuse(column, f"is {_shown(value)}, not a list of messages")
    return value


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _text(record: Values, column: str) -> str:
    value = record.get(column)
    if value is None:
        others = ", ".join(str(key) for key in record) or "none"
        _refuse(column, f"is missing; the record has {_short(others)}")
    if value == "":
        _refuse(column, "is an empty text")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        _refuse(column, f"is {_shown(value)}, not a text")
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(column, "is not a finite number")
    return _clean(str(value), column)


def _answer(record: Values, column: str, *, needed: bool) -> str:
    """The reference; several answers in a list, all of which are asked for, joined by commas."""
    value = record.get(column)
    if not needed and (value is None or value == ""):
        return ""
    if not _is_list(value) or not len(value):
        return _text(record, column)
    return ", ".join(_text({column: part}, column) for part in value)


def _clean(text: str, field: str) -> str:
    """Return the text; tokenizers and stores fail on the characters rejected here."""
    if "\0" in text:
        _refuse(field, "holds a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        _refuse(field, "holds half of a surrogate pair, which is not a valid character")
    return text


def _refuse(field: str, problem: str) -> NoReturn:
    # The record may hold half of a surrogate pair, which a status cannot be written with.
    readable = problem.encode(errors="backslashreplace").decode()
    raise BadRecordError(f"field {field!r} {readable}")


def _shown(value: object) -> str:
    """What kind of value it is. Never the value: whoever names a file would read it in a status."""
    match value:
        case None:
            return "missing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return f"a text of {len(value)} characters"
        case Mapping():
            return "an object"
        case list() | tuple():
            return f"a list of {len(value)}"
        case _:
            return f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
