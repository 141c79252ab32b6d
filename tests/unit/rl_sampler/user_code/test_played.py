"""Rewards and metrics of a Harbor task's tests, in the session of its program."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from rl_contracts.documents.harbor import HarborTask
from rl_sampler.code.client import CodeCalls
from rl_sampler.code.replies import Judged, Ran
from rl_sampler.gateway.posted import MOST_METRICS
from rl_sampler.gateway.session import Session
from rl_sampler.user_code.played import Played, play
from tests.unit.rl_sampler.gateway.scripted_sessions import a_session

TASK = HarborTask(tests="0" * 64)


class Ended:
    """In the place of the pod: a program that has ended, and its tests."""

    def __init__(self, written: object) -> None:
        self._answers = [
            Ran(exit_code=0, log="fine", seconds=1.0),
            Judged(exit_code=0, log="all passed\n", reward_json=json.dumps(written)),
        ]

    @asynccontextmanager
    async def call(self, request: dict[str, Any]) -> AsyncIterator[Ended]:
        yield self

    async def send(self, request: dict[str, Any]) -> None:
        assert request["call"] == "test"

    async def receive(self, model: type[Ran]) -> Ran:
        return self._answers.pop(0)


async def judged(session: Session, written: object) -> Played:
    code = cast(CodeCalls, Ended(written))
    return await play(code, {}, seconds=5.0, session=session, task=TASK, archive=b"")


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("tests_passed", "tests_passed"),
        ("tests/test_a.py::test_one", "tests/test_a_py::test_one"),
        ("p99.9", "p99_9"),
        ("$cost", "_cost"),
        ("$" + "x" * 70, "_" + "x" * 63),
        ("a\nb", "a_b"),
        ("\ud83d", "_"),
        ("", "_"),
    ],
)
async def test_a_name_that_stores_refuse_is_changed_and_the_reward_stays(
    name: str, stored: str
) -> None:
    session, _ = a_session([])
    played = await judged(session, {"reward": 1, name: 3})
    assert (session.reward, session.metrics, played.problem) == (1.0, {stored: 3.0}, "")
    assert ("renamed" in played.tests_log) == (name != stored)
    assert played.tests_log.startswith("all passed\n")
    played.tests_log.encode()


async def test_metrics_without_room_are_left_out_and_the_reward_stays() -> None:
    session, _ = a_session([])
    many = {f"m{number}": number for number in range(MOST_METRICS + 1)}
    played = await judged(session, {"reward": 1, "a.b": 1, "a_b": 2, **many})
    assert session.reward == 1.0
    assert session.metrics == {"a_b": 2.0, **{f"m{number}": number for number in range(31)}}
    assert played.tests_log.endswith("left out 'm31', left out 'm32', left out 'a.b'.\n")


async def test_metrics_of_the_tests_come_before_those_of_the_program() -> None:
    session, _ = a_session([])
    own = {f"m{number}": 0 for number in range(MOST_METRICS)}
    session.report({"reward": 0.0, "metrics": own})
    await judged(session, {"reward": 1, "m0": 1, "passed": 1})
    assert session.reward == 1.0
    kept = {f"m{number}": 0.0 for number in range(1, MOST_METRICS - 1)}
    assert session.metrics == {"m0": 1.0, "passed": 1.0, **kept}


async def test_tests_without_a_reward_take_back_what_the_program_posted() -> None:
    session, _ = a_session([])
    session.report({"reward": 1.0})
    played = await judged(session, {"reward": 2})
    assert session.reward is None
    assert "rewards are in [0, 1]; the tests ended with exit code 0" in played.problem
