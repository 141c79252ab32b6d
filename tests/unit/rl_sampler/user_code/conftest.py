"""User code of the tests, as the module `theirs`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.engine.problems import Problems
from rl_sampler.user_code.remote import UserCode, user_code_of
from tests.code_container import in_thread
from tests.samples.manifests import a_job

CODE = """
import asyncio, datetime, functools, sys, threading
import numpy as np
from rl_sampler.extension import Member, Response, ScoringError, ToolDownError, ToolError, show

value = 3
test_ended = threading.Event()

def length(response: Response, *, most: int = 10) -> float:
    return len(response.text) / most

async def slowly(response):
    await asyncio.sleep(0)
    return 0.5

def in_unit(response):
    return float(response.fields["unit"] in response.text and not response.reference)

NUMBERS = {
    "float32": np.float32(0.5), "one of an array": np.ones(2)[0], "true": True,
    "text": "0.5", "array": np.zeros(2), "more": np.float32(2.0),
}

def numbers(response):
    return NUMBERS[response.text]

class Table:
    def __init__(self, *, known):
        self.known = known
    def __call__(self, response):
        return self.known[response.text]

class Mute:
    pass

class Broken:
    def __init__(self):
        raise OSError("no model here")

def hangs(response):
    test_ended.wait(60)
    return 1.0

async def blocks(response):
    test_ended.wait(2)
    return 1.0

async def hangs_too(response):
    await asyncio.sleep(1000)

def leaves(response):
    sys.exit(7)

def finds_nothing(response):
    return next(float(line) for line in response.text.splitlines() if line)

def sees_openings(response):
    return float(len(response.opened) > 0)

def down(response):
    raise ScoringError("the service is away")

def search(query: str, limit: int = 3, *, index: str) -> list[str]:
    "Searches."
    if query == "down":
        raise ToolDownError("no index")
    if query == "bug":
        return 1 / 0
    if query == "none":
        raise ToolError("nothing found")
    return [f"{index}:{query}"] * limit

def decorated(function):
    @functools.wraps(function)
    def wrapper(*positional, **named):
        return function(*positional, **named)
    return wrapper

@decorated
async def grades(response):
    return 0.5

@decorated
async def looks_up(query: str) -> str:
    return f"all about {query}"

RESULTS = {
    "bytes": b"PNG", "object": object(), "date": [datetime.date(2026, 1, 1)], "none": None,
}

def results(name: str):
    return (line for line in name) if name == "lines" else RESULTS[name]

def talks(much: int):
    if much < 0:
        raise ToolError("x" * -much)
    return "x" * much

async def shows_much(member: Member):
    await show(member, [{"role": "user", "content": "x" * (17 << 20)}])
    return "stop"

def untyped(query):
    return query

def many(*queries: str):
    return ""

def odd(queries: asyncio.Event):
    return ""

def no_such_type(day: "sys.Date"):
    return ""

def no_type_at_all(days: "list[str"):
    return ""

class Unsigned:
    @property
    def __signature__(self):
        raise LookupError("no signature here")
    def __call__(self, response):
        return 1.0

unsigned = Unsigned()

async def shows_off(member: Member, *, rounds: int):
    for _ in range(rounds):
        await show(member, [{"role": "user", "content": "again"}])
        response = await member.respond()
        assert response is member.turns[-1]
        assert await member.conversation() == await member.conversation()
    return member.turns[-1].stop_reason

async def returns_nothing(member): ...

async def reads_fields(member: Member):
    await show(member, [{"role": "user", "content": member.fields["hint"]}])
    await member.respond()
    return "stop"

async def stumbles(member):
    raise KeyError("x")

async def uses_tools(member: Member):
    parsed = await member.calls(member.turns[-1])
    assert not parsed.malformed
    results = await member.use(parsed.calls)
    assert [call.result for call in member.turns[-1].calls] == ["42"]
    assert await show(member, results)
    await member.respond(limit=3)
    await member.blame("too short")
    assert member.turns[-1].error.message == "too short"
    assert await member.listen() == "thanks"
    assert (await member.conversation())[0]["content"] == member.messages[0].text
    return "stop"

async def shows_nothing(member):
    await show(member, [])
    return "stop"

def is_not_async(member): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "theirs.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("theirs", "broken", "task_types"):
        sys.modules.pop(name, None)


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Callable[..., UserCode]]:
    """Makes the user's code of a manifest, called through the socket of a container ``code``."""
    with ThreadPoolExecutor(1) as elsewhere, ExitStack() as containers:

        def load(**sections: Any) -> UserCode:
            folder = tmp_path / f"container-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            spec = a_job(**sections)["spec"]
            code = containers.enter_context(in_thread(folder, spec))
            loading = user_code_of(spec_with(**sections), code, Problems())
            return elsewhere.submit(asyncio.run, loading).result()  # a test may have a loop

        yield load
        if "theirs" in sys.modules:
            sys.modules["theirs"].test_ended.set()  # else the thread of `hangs` would be waited for


def spec_with(**sections: Any) -> RLJobSpec:
    return RLJobSpec.model_validate(a_job(**sections)["spec"])
