from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.datasets.records import BadRecordError, parse_record
from rl_contracts.documents.datasets.text import loads
from rl_contracts.documents.task import ContentPart, Message
from rl_contracts.spec.data import Columns

CHAT = Columns(messages="messages")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def parse(record: Any, columns: Columns | None = None) -> Example:
    return parse_record(record, columns=columns or Columns(), place="line 7")


def test_a_record_becomes_a_user_message_and_a_reference_answer() -> None:
    asked = (user("1+1="),)
    assert parse({"id": "a", "query": "1+1=", "answer": "2"}) == Example(
        id="a", messages=asked, answer="2"
    )
    numbers = {"id": 7, "query": "1+1=", "answer": 2.5, "more": [1]}
    assert parse(numbers) == Example(id="7", messages=asked, answer="2.5")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "[1, 1e400]"])
def test_a_number_that_is_not_finite_is_no_reference(number: str) -> None:
    record = loads(f'{{"query": "x", "answer": {number}}}')
    with pytest.raises(BadRecordError, match="field 'answer' is not a finite number"):
        parse(record)


def test_columns_rename_fields_and_a_record_without_an_id_is_named_by_its_place() -> None:
    columns = Columns(query="question", answer="solution")
    example = parse({"question": "x", "solution": "y"}, columns)
    assert example == Example(id="line 7", messages=(user("x"),), answer="y")
    with pytest.raises(BadRecordError, match="field 'key' is missing"):
        parse({"query": "x", "answer": "y"}, Columns(id="key"))


def test_a_conversation_is_cut_after_the_last_user_turn() -> None:
    turns = [turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", "d")]
    example = parse({"messages": turns}, CHAT)
    assert [(message.role, message.text) for message in example.messages] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]
    assert example.answer == "d"
    columns = Columns(messages="messages", answer="label")
    assert parse({"messages": turns, "label": 4}, columns).answer == "4"
    assert parse({"messages": turns[:1], "label": 4}, columns).messages == (user("a"),)


def test_parts_of_a_message_are_kept() -> None:
    content = [
        {"type": "text", "text": "a", "image_url": None},
        {"type": "text", "text": "b"},
    ]
    record = {"messages": [turn("system", "s"), turn("user", content), turn("assistant", "c")]}
    message = parse(record, CHAT).messages[1]
    assert message.content == (ContentPart(text="a"), ContentPart(text="b"))
    assert message.text == "ab"


def test_a_record_may_name_its_scorer_and_its_answer_schema() -> None:
    columns = Columns(scorer="judge", answer_schema="form")
    record = {"id": "a", "query": "q", "answer": "2", "judge": "Math", "form": "Boxed"}
    example = parse(record, columns)
    assert (example.scorer, example.answer_schema) == ("Math", "Boxed")
    example = parse(record | {"judge": None, "form": None}, columns)
    assert (example.scorer, example.answer_schema) == ("", "")
    assert parse(record).scorer == ""
    assert parse(record | {"form": "boxed"}, columns).answer_schema == "Boxed"
    with pytest.raises(
        BadRecordError,
        match=r"field 'form' is a text of 3 characters, not one of Auto, Answer, Boxed",
    ):
        parse(record | {"form": "XML"}, columns)
    with pytest.raises(BadRecordError, match=r"field 'judge' is .*, which cannot be the name"):
        parse(record | {"judge": "rm -rf"}, columns)


SECRET = "not-for-a-status"
GOOD = {"id": "a", "query": "q", "answer": "2"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([1], "is not a JSON object"),
        ({"id": "a", "answer": "2"}, "field 'query' is missing; the record has id, answer"),
        ({}, "the record has none"),
        ({"\ud800": "q"}, "the record has \\ud800"),
        (GOOD | {"query": ""}, "field 'query' is an empty text"),
        (GOOD | {"query": ["x"]}, "field 'query' is a list of 1, not a text"),
        (GOOD | {"answer": {"value": 2}}, "field 'answer' is an object, not a text"),
        (GOOD | {"answer": b"2"}, "field 'answer' is a bytes, not a text"),
        (GOOD | {"id": True}, "field 'id' is a boolean, not a text"),
        (GOOD | {"id": "x" * 300}, "field 'id' has 300 characters"),
        (GOOD | {"query": "a\0b"}, "field 'query' holds a NUL"),
        (GOOD | {"query": "\ud800"}, "field 'query' holds half of a surrogate pair"),
        (GOOD | {"query": [SECRET * 50]}, "field 'query' is a list of 1, not a text"),
        (GOOD | {"query": {SECRET: SECRET}}, "field 'query' is an object, not a text"),
    ],
)
def test_a_bad_record_names_its_field(record: Any, message: str) -> None:
    with pytest.raises(BadRecordError) as bad:
        parse(record)
    assert message in str(bad.value)
    assert len(str(bad.value)) < 300
    assert SECRET not in str(bad.value)
    assert str(bad.value).encode().decode() == str(bad.value), "no document can hold it"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (..., "field 'messages' is missing"),
        ("hello", "field 'messages' is a text of 5 characters, not a list of messages"),
        ([], "field 'messages' has no user turn"),
        (["hello"], "field 'messages[0]' is a text of 5 characters, not a message"),
        (
            [turn("human", "a")],
            "field 'messages[0].role' is a text of 5 characters, not one of system,",
        ),
        ([turn("user", "a")], "no assistant turn after the last user turn"),
        ([turn("assistant", "a"), turn("user", "b")], "no assistant turn after"),
        ([turn("user", "")], "field 'messages[0].content' is empty"),
        ([turn("user", 3)], "field 'messages[0].content' is a number, not a text"),
        ([turn("user", None)], "field 'messages[0].content' is missing"),
        (
            [turn("user", ["a"])],
            "field 'messages[0].content[0]' is a text of 1 characters, not a part",
        ),
        (
            [turn("user", [{"type": "image"}])],
            "content[0].type' is image: set spec.data.images",
        ),
        ([turn("user", [{"type": "text"}])], "content[0].text' is missing"),
        (
            [turn("user", "a") | {"tool_calls": [1]}],
            "field 'messages[0].tool_calls' is not supported",
        ),
    ],
)
def test_a_bad_conversation_names_its_field(messages: Any, message: str) -> None:
    record = {} if messages is ... else {"messages": messages}
    with pytest.raises(BadRecordError) as bad:
        parse(record, CHAT)
    assert message in str(bad.value)


def test_a_scenario_is_a_text_or_the_users_turns() -> None:
    columns = Columns(scenario="aim")
    record = {"query": "x", "answer": "y"}
    assert parse(record | {"aim": "Wants 42."}, columns).scenario == ("Wants 42.",)
    assert parse(record | {"aim": ["And?", "Thanks."]}, columns).scenario == ("And?", "Thanks.")
    for bad in (None, [], [""], [["a"]], ["a\0"], {"a": 1}):
        with pytest.raises(BadRecordError, match="aim"):
            parse(record | {"aim": bad}, columns)


def judged_alone(scorer: str) -> bool:
    return scorer == "Math"


def test_a_record_that_nothing_compares_with_may_lack_its_answer() -> None:
    columns = Columns(scorer="by")
    for record in ({"query": "x"}, {"query": "x", "answer": None}, {"query": "x", "answer": ""}):
        example = parse_record(record, columns=columns, place="", compares=judged_alone)
        assert example.answer == ""
    with pytest.raises(BadRecordError, match="'answer' is missing"):
        parse_record({"query": "x", "by": "Math"}, columns=columns, place="", compares=judged_alone)
    turns = {"messages": [turn("user", "a")]}
    assert parse_record(turns, columns=CHAT, place="", compares=judged_alone).answer == ""
    with pytest.raises(BadRecordError, match="no assistant turn"):
        parse(turns, CHAT)


def test_named_fields_are_kept_as_json() -> None:
    columns = Columns(fields=["unit", "cases", "rare", "none"])
    record = {"query": "x", "answer": "y", "unit": "m", "cases": [{"$in.a": 2**70}], "none": None}
    assert json.loads(parse(record, columns).fields) == {"unit": "m", "cases": [{"$in.a": 2**70}]}
    assert parse({"query": "x", "answer": "y", "unit": "m"}).fields == ""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"a", "'unit' is a bytes that JSON cannot hold"),
        (float("nan"), "'unit' is a number that JSON cannot hold"),
        ("\ud800", "half of a surrogate pair"),
        ("x" * 70_000, "'unit' and the others of columns.fields have 700"),
    ],
)
def test_a_field_that_code_cannot_be_given_is_named(value: object, problem: str) -> None:
    with pytest.raises(BadRecordError, match=problem):
        parse({"query": "x", "answer": "y", "unit": value}, Columns(fields=["unit"]))
