from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.task import Message
from rl_trainer.data.spool import Spool


def an_example(number: int) -> Example:
    messages = (Message(role="system", content="é"), Message(role="user", content=f"\n{number}"))
    return Example(id=f"e{number}", messages=messages, answer=str(number))


def test_examples_come_back_at_any_place(tmp_path: Path) -> None:
    examples = [an_example(number) for number in range(5)]
    spool = Spool(tmp_path / "spool", iter(examples))
    assert list(spool) == examples
    assert spool[-1] == examples[-1]
    assert spool[1:3] == examples[1:3]
    with pytest.raises(IndexError):
        spool[5]


def test_the_digest_depends_on_the_order(tmp_path: Path) -> None:
    example, other = an_example(1), an_example(2)
    first = Spool(tmp_path / "a", [example, other])
    assert first.sha256 == Spool(tmp_path / "b", [example, other]).sha256
    assert first.sha256 != Spool(tmp_path / "c", [other, example]).sha256


def test_fields_come_back_and_change_only_their_own_digest(tmp_path: Path) -> None:
    plain, fields = an_example(1), replace(an_example(1), fields='{"unit": "m"}')
    spool = Spool(tmp_path / "a", [fields])
    assert spool[0] == fields
    assert spool.sha256 != Spool(tmp_path / "b", [plain]).sha256
    assert "fields" not in (tmp_path / "b").read_text()


def test_a_scenario_comes_back_and_changes_only_its_own_digest(tmp_path: Path) -> None:
    plain, talk = an_example(1), replace(an_example(1), scenario=("And?", "Thanks."))
    spool = Spool(tmp_path / "a", [talk])
    assert spool[0] == talk
    assert spool.sha256 != Spool(tmp_path / "b", [plain]).sha256
    assert "scenario" not in (tmp_path / "b").read_text()
