"""Stores of a test's own, and the poller that reads them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import bson

from rl_contracts.reader import RefusalText, RunsAnswer, RunsRequest, StoreState
from rl_contracts.stores.overview import Overview
from rl_operator.kube.kinds import Key
from rl_operator.stores.reader_pods import STARTING, Place, ReaderDownError
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_poll import RunProgressPoller
from rl_reader.runs import _described
from tests.samples.documents import a_run
from tests.waiting import HUNG_SECONDS

SECRET = "stores"
UP = StoreState(status="True", reason="Reachable")
MISSING = RefusalText(
    field="f", value="v", reason="StoresSecretMissing", message="No.", remedy="Do."
)


def a_key(name: str, namespace: str = "ns") -> Key:
    return Key("RLJob", namespace, name)


class World(Readers):
    """Stores whose documents, outages and slowness a test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.runs: dict[str, dict[str, Any]] = {}
        self.secret_version, self.down, self.error, self.starting = 1, False, "", False
        self.fitting = 10_000
        self.open_tasks: Iterator[int] = itertools.repeat(7)
        self.reads: list[set[str]] = []
        self.first_of_reads: list[str] = []
        self.usable: list[bool] = []
        self.answers = threading.Event()
        self.answers.set()
        self.woken: list[str] = []
        self.poller = RunProgressPoller(
            self,
            enqueue=lambda key: self.woken.append(key.name),
            clock=lambda: self.now,
            seconds=5.0,
        )

    def ask(self, place: Place, path: str, body: Any, answer: Any) -> Any:
        assert isinstance(body, RunsRequest)
        self.reads.append(set(body.runs))
        self.first_of_reads.append(body.runs[0])
        assert self.answers.wait(HUNG_SECONDS)
        if self.error:
            raise ZeroDivisionError(self.error)
        if self.starting:
            raise ReaderDownError(STARTING, "Pod x is starting.")
        return self._answer(body)

    def _answer(self, request: RunsRequest) -> RunsAnswer:
        version = str(self.secret_version)
        if not self.secret_version:
            return RunsAnswer(version=version, refusal=MISSING)
        if self.down:
            store = StoreState(status="False", reason="StateStoreUnreachable", cause="refused")
            return RunsAnswer(version=version, store=store, bucket=UP)
        described = {
            run: _described(
                _overview(self.runs.get(run)),
                self.now,
                next(self.open_tasks) if run in request.count else None,
            )
            for run in request.runs[: self.fitting]
        }
        return RunsAnswer(version=version, store=UP, bucket=UP, now=self.now, runs=described)

    def note_version(self, place: Place, version: str, *, usable: bool) -> None:
        self.usable.append(usable)

    def trains(self, run: str, **changes: Any) -> None:
        self.runs[run] = a_run(id=run, heartbeat_at=self.now).to_mongo() | changes

    def read(self, run: str, **options: Any) -> Any:
        self.now += 0.001
        return self.poller.read(a_key(f"job-{run}"), run, SECRET, **options)

    def poll(self, seconds: float = 0.0) -> list[str]:
        """Objects that are enqueued by a poll after some seconds."""
        self.now += seconds
        self.woken.clear()
        self.poller.poll()
        self.finish()
        return sorted(self.woken)

    def finish(self) -> None:
        for namespace in list(self.poller._namespaces.values()):
            if namespace.pending is not None:
                namespace.pending.exception(HUNG_SECONDS)


def _overview(run: dict[str, Any] | None) -> Overview:
    return Overview(stored_run=bson.encode(run)) if run is not None else Overview()
