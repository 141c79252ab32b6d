"""Whom a list of endpoints asks, and when it gives up; the endpoints are a script here."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from rl_sampler.completions.endpoint import Completion, Messages, Server
from rl_sampler.completions.errors import EndpointDownError, NoCompletionError, UnreadableError
from rl_sampler.completions.failover import Failover
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving

QUESTION: Messages = ({"role": "user", "content": "How good is it?"},)


@dataclass(eq=False)
class Script:
    """Answers in turn; None is no answer."""

    name: str
    answers: list[str | None]
    asked: int = 0
    endpoint: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(model="m"))

    async def complete(self, messages: Messages) -> Completion:
        self.asked += 1
        text = self.answers.pop(0)
        if text is None:
            raise EndpointDownError(f"{self.name} does not answer")
        return Completion(text=text, prompt_tokens=1, completion_tokens=1)


def failover(*scripts: Script) -> Failover:
    outages = Outages(serving=Serving(), problems=Problems())
    return Failover(
        "Judge", [cast(Server, script) for script in scripts], counters=Counters(), outages=outages
    )


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UnreadableError(f"{text!r} is no number") from error


async def test_failover_asks_the_next_endpoint_while_the_first_backs_off() -> None:
    first, second = Script("first", [None]), Script("second", ["0.5", "0.6"])
    asking = failover(first, second)
    assert [await asking.ask(QUESTION, number) for _ in range(2)] == [0.5, 0.6]
    assert (first.asked, second.asked) == (1, 2)


async def test_failover_asks_an_endpoint_that_backs_off_before_it_fails() -> None:
    first, second = Script("first", [None, "0.9"]), Script("second", ["0.5", "good"])
    asking = failover(first, second)
    assert await asking.ask(QUESTION, number) == 0.5
    assert await asking.ask(QUESTION, number) == 0.9


async def test_failover_error_lists_the_complaint_of_each_endpoint() -> None:
    asking = failover(Script("first", ["well"]), Script("second", ["good"]))
    with pytest.raises(NoCompletionError, match="'well' is no number; 'good' is no number"):
        await asking.ask(QUESTION, number)
