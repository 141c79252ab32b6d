"""User code of the tests, as the module `theirs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.user_code.load import UserCode, load_user_code
from tests.manifests import a_job

CODE = """
import asyncio, threading
from rl_sampler.extension import Member, Response, ScoringError, ToolDownError, ToolError, show

value = 3
test_ended = threading.Event()

def length(response: Response, *, most: int = 10) -> float:
    return len(response.text) / most

async def slowly(response):
    await asyncio.sleep(0)
    return 0.5

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

async def hangs_too(response):
    await asyncio.sleep(1000)

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

def untyped(query):
    return query

def many(*queries: str):
    return ""

def odd(queries: asyncio.Event):
    return ""

async def shows_off(member: Member, *, rounds: int):
    for _ in range(rounds):
        await show(member, [{"role": "user", "content": "again"}])
        await member.respond()
    return member.turns[-1].stop_reason

async def returns_nothing(member): ...

async def stumbles(member):
    raise KeyError("x")

def is_not_async(member): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "theirs.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("theirs", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture
def loaded() -> Iterator[Callable[..., UserCode]]:
    with ThreadPoolExecutor(4) as threads:
        yield lambda **sections: load_user_code(spec_with(**sections), threads=threads)
        if "theirs" in sys.modules:
            sys.modules["theirs"].test_ended.set()  # else the thread of `hangs` would be waited for


def spec_with(**sections: Any) -> RLJobSpec:
    return RLJobSpec.model_validate(a_job(**sections)["spec"])
