"""A trainer that dies between two of its commands to the stores, wherever the test wants."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from rl_contracts.stores import connect
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.objects import Objects
from rl_trainer import attempt, loop
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.model import learner
from rl_trainer.phases import Phases
from tests.contract.rl_trainer.world import World

T = TypeVar("T")


class Crashed(BaseException):
    """The process is dead: nothing catches this, and nothing it sends arrives."""


class Fuse:
    """Counts commands of all threads and burns through after so many, or when it is blown."""

    def __init__(self, commands: float) -> None:
        self._left = commands
        self._lock = threading.Lock()

    def burn(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                raise Crashed

    def blow(self) -> None:
        """Nothing of any thread arrives from now on; raises Crashed."""
        with self._lock:
            self._left = 0
        raise Crashed


@contextmanager
def crashing_after(commands: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores connected inside die with their process after so many commands."""
    with monkeypatch.context() as patch:
        _fused(Fuse(commands), patch)
        yield


@contextmanager
def crashing_at(
    place: str, monkeypatch: pytest.MonkeyPatch, *, once: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """A trainer inside dies where it first comes to a place, when ``once`` returns.

    Args:
        place: see ``reaching``.
        monkeypatch: pytest's.
        once: waits for what the other threads of the trainer must have done before.
    """
    fuse = Fuse(math.inf)

    def die() -> None:
        once()
        fuse.blow()

    with monkeypatch.context() as patch, reaching(place, die, monkeypatch):
        _fused(fuse, patch)
        yield


@contextmanager
def reaching(
    place: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A trainer inside calls ``act`` wherever it comes to a place.

    Args:
        place: beginning of what its heartbeat says there, or ``<phase> begins``, ``<phase> ends``
            with one of ``phases``.
        act: called on the trainer's own thread.
        monkeypatch: pytest's.
    """

    def reach(here: str) -> None:
        if here.startswith(place):
            act()

    class WatchedPhases(Phases):
        @contextmanager
        def of(self, name: str) -> Iterator[None]:
            reach(f"{name} begins")
            with super().of(name):
                yield
            reach(f"{name} ends")

    class WatchedHeartbeat(Heartbeat):
        def say(self, doing: str) -> None:
            super().say(doing)
            reach(doing)

    with monkeypatch.context() as patch:
        for module in (loop, learner):
            patch.setattr(module, "Phases", WatchedPhases)
        patch.setattr(attempt, "Heartbeat", WatchedHeartbeat)
        yield


def _fused(fuse: Fuse, patch: pytest.MonkeyPatch) -> None:
    """Stores connected from now on send no more once the fuse has burned."""

    class BrittleMongo(Mongo):
        def call(self, doing: str, operation: Callable[[], T]) -> T:
            fuse.burn()
            return super().call(doing, operation)

    class BrittleObjects(Objects):
        def call(self, doing: str, operation: Callable[[], T], *, key: str = "") -> T:
            fuse.burn()
            return super().call(doing, operation, key=key)

        def of_bucket(self, bucket: str) -> Any:
            assert bucket == self.bucket
            return self

    patch.setattr(connect, "Mongo", BrittleMongo)
    patch.setattr(connect, "Objects", BrittleObjects)


def train_over_crashes(
    world: World, monkeypatch: pytest.MonkeyPatch, *, first: int, later: int
) -> None:
    """Attempts that die after so many commands, each of ``later`` more than the one before.

    The last one ends well, and there was at least one before it.
    """
    for commands in itertools.count(first, later):
        try:
            with crashing_after(commands, monkeypatch):
                assert world.attempt() == 0
            break
        except Crashed:
            continue
    assert commands > first
