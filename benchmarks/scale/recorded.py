"""The stores as a record: what the pods of a run would have written, read from a file each."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from rl_contracts.documents.run import Outcome, PolicyPointer, Run
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.stores.connect import Stores
from rl_operator.kube.kinds import Key
from rl_operator.state.progress import REACHED, Reach, Reading
from rl_operator.stores.connections import StoresOf
from rl_operator.stores.preflight import Verdict
from rl_operator.stores.readings import INTEREST_SECONDS

FOLDER = "RL_RECORDED"
"""Environment variable: where the files are."""
SUCCEEDED = Outcome(kind="Succeeded", reason="Trained", message="All steps.")


class RecordedConnections:
    """No stores."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def of(self, namespace: str, secret: str) -> StoresOf:
        """Nothing that anybody needs."""
        return StoresOf(place=f"{namespace}/{secret}")

    def use(self, job: Key, secret: str) -> None:
        """Nothing is held."""

    def release(self, job: Key) -> None:
        """Nothing was held."""

    def last(self, namespace: str, secret: str) -> Stores | None:
        """Nothing."""
        return None


class PassedPreflight:
    """Inputs that are in order."""

    def __init__(self, **_: Any) -> None:
        pass

    def verdict(self, key: Key, spec: object, found: StoresOf) -> Verdict:
        """In order."""
        return Verdict(passed=True)

    def forget(self, key: Key) -> None:
        """Nothing is held."""


class RecordedReader:
    """Readings of the record."""

    def __init__(self, connections: object, *, clock: Callable[[], float]) -> None:
        self._folder = os.environ[FOLDER]
        self._clock, self._started = clock, time.time()
        self._lock = threading.Lock()
        self._read: dict[str, tuple[Reading, float]] = {}
        """By run, of what was said last, and when it was asked for, the longest ago first: the
        stores themselves are not asked at each look, and what nobody asks for is forgotten."""

    def read(self, run: str, found: StoresOf, *, anew: bool = False) -> Reading:
        """What the pods of a run have written, which is looked up each time."""
        text, now = self.gist(run, found), self._clock()
        with self._lock:
            known, _ = self._read.pop(run, (None, now))
        if known is None or known.gist != text:
            known = self._parsed(run, text)
        with self._lock:
            self._read[run] = (known, now)
            while next(iter(self._read.values()))[1] < now - INTEREST_SECONDS:
                del self._read[next(iter(self._read))]
        return dataclasses.replace(known, now=time.time())

    def _parsed(self, run: str, text: bytes) -> Reading:
        bucket: Reach = REACHED
        if not text:
            return Reading(store=REACHED, bucket=bucket)
        said = json.loads(text)
        samplers = tuple(self._sampler(run, pod, pool) for pod, pool in said["samplers"].items())
        return Reading(
            store=REACHED,
            bucket=bucket,
            run=self._run(run, over=said["over"]) if said["trains"] else None,
            samplers=samplers,
            registrations=samplers,
            gist=text,
        )

    def gist(self, run: str, found: StoresOf) -> bytes:
        """The record as it is; empty while nobody has written one."""
        try:
            with open(f"{self._folder}/{run}", "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _sampler(self, run: str, pod: str, pool: str) -> Sampler:
        return Sampler(
            id=f"{run}.sampler.{pod}",
            run=run,
            pool=pool,
            pod=pod,
            state=SamplerState.READY,
            version=1,
            scorers=["ExactMatch"],
            registered_at=self._started,
            heartbeat_at=self._started,
        )

    def _run(self, run: str, *, over: bool) -> Run:
        policy = PolicyPointer(version=1, epoch=1, step=0, prefix=run, manifest_sha256="0" * 64)
        return Run(
            id=run,
            namespace="n",
            job="j",
            created_at=self._started,
            steps=10,
            epoch=1,
            heartbeat_at=self._started,
            progress_at=self._started,
            policy=policy,
            outcome=SUCCEEDED if over else None,
        )
