"""The page of exit codes has each program's codes and no others."""

from __future__ import annotations

import re

import pytest

from rl_console import errors as console
from rl_contracts.audit import __main__ as audit
from rl_sampler import TERMINATED
from rl_sampler import program as sampler
from rl_sampler.sandbox import server as sandbox
from rl_sampler.user_code.programs import single_use
from rl_trainer import attempt
from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
TRAINER = {
    attempt.SUCCEEDED,
    attempt.FAILED,
    attempt.REFUSED,
    attempt.FENCED_OUT,
    attempt.TOO_LATE,
    attempt.TERMINATED,
}
SAMPLER = {0, sampler.FAILED, sampler.REFUSED, TERMINATED}
CONSOLE = {
    0,
    console.FAILED,
    console.USAGE,
    console.NOT_FOUND,
    console.NOT_ALLOWED,
    console.UNREACHABLE,
    console.REFUSED,
    console.TIME_OVER,
    console.INTERRUPTED,
}
AUDIT = {audit.GOOD, audit.BAD, audit.REFUSED, audit.UNREACHABLE}


@pytest.mark.parametrize(
    ("section", "codes"),
    [
        ("Trainer", TRAINER),
        ("Sampler", SAMPLER),
        ("Programs", {single_use.EPISODE_ENDED, single_use.POD_USED}),
        ("Operator", {0, 1}),
        ("Audit", AUDIT),
        ("Console", CONSOLE),
    ],
)
def test_each_exit_code_has_its_row(section: str, codes: set[int]) -> None:
    rows = re.findall(r"^\| (\d+) \|", SECTIONS[section], re.MULTILINE)
    assert [int(row) for row in rows] == sorted(codes)


def test_the_sandbox_refuses_with_the_sampler_s_code() -> None:
    assert sandbox.REFUSED == sampler.REFUSED
