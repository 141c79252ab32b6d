"""What kubectl reads as a number, a boolean or a text is read as the same here."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rl_console.manifests.loading import documents, explained, value_of


def loaded(text: str) -> Any:
    ((_, value),) = documents(text)
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E5", 100000),
        ("+1.5e3", 1500),
        (".5", 0.5),
        ("5.", 5),
        ("6.5e+5", 650000),
        ("1_000", 1000),
        ("1_0.5", 10.5),
        ("010", 8),
        ("0o10", 8),
        ("08", 8),
        ("-0x1F", -31),
        ("0b11", 3),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("'1e-6'", "1e-6"),
        ("1e400", "1e400"),
        (".e3", ".e3"),
        ("_1", "_1"),
        ("=", "="),
        ("y", True),
        ("Yes", True),
        ("on", True),
        ("N", False),
        ("off", False),
        ("tRue", "tRue"),
        ("~", None),
        ("nULL", "nULL"),
    ],
)
def test_a_value_is_of_the_type_that_kubectl_takes_it_for(text: str, value: Any) -> None:
    """Each was read by ``kubectl patch --local -o json``."""
    read = loaded(f"a: {text}")["a"]
    assert (read, isinstance(read, bool)) == (value, isinstance(value, bool))
    assert value_of(text) == read


def test_a_key_is_the_text_that_kubectl_makes_of_it() -> None:
    assert loaded("{1: a, true: b, 1.5: c, 2024-01-01: d}") == {
        "1": "a",
        "true": "b",
        "1.5": "c",
        "2024-01-01": "d",
    }


def test_json_may_be_indented_by_tabs() -> None:
    assert loaded('{\n\t"a": 1e-6\n}\n') == {"a": 1e-6}


def test_documents_come_with_the_line_they_begin_in() -> None:
    assert list(documents("a: 1\n---\n- 2\n---\n")) == [(1, {"a": 1}), (3, [2]), (5, None)]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a: 1\nb: {c: 1,\n  c: 2}", "line 3: c is there already, in line 2"),
        ("yes: 1\ntrue: 2", "line 2: true is there already, in line 1"),
        ('{"a": 1,\n"a": 2}', "line 2: a is there already, in line 1"),
        ("a: {null: 1}", "line 1: a key must be a text"),
        ("? [a]\n: 1", "line 1: a key must be a text"),
        ("a: !!binary aGk=", "line 1: aGk= does not fit its tag !!binary: remove the tag"),
        ("a: !!bool x", "line 1: x does not fit its tag !!bool: remove the tag"),
        ("a: &a [*a]", "an alias (*name) stands inside what it names"),
        ("[" * 5000, "it is nested too deeply"),
        ('{"a":' * 5000, "it is nested too deeply"),
        ("a:\n  b: c\n  \td: e", "line 3 begins with a tab; YAML takes only spaces"),
        ("a:\tb", "line 1 has a tab; YAML takes only spaces"),
        ("a: b: c", "line 1: there may be no key here: correct the indentation, or put a text"),
        ("a:\n  'b", "line 2: the end was not expected: a quotation mark is missing"),
        ("a: \x00", "the character U+0000 is not allowed in YAML"),
        ("a: [", "line 1: expected the node content, but found the end, while parsing"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, cause: str) -> None:
    with pytest.raises(yaml.YAMLError) as raised:
        list(documents(text))
    assert explained(raised.value).startswith(cause)


def test_a_merged_map_may_have_its_keys_replaced() -> None:
    assert loaded("a: &x {b: 1, c: 1}\nd:\n  <<: *x\n  b: 2\n")["d"] == {"b": 2, "c": 1}
