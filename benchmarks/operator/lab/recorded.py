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
from rl_operator.kube.kinds import Key
from rl_operator.state.progress import REACHED, Reach, Reading
from rl_operator.stores.preflight import Verdict
from rl_operator.stores.run_poll import RUNS_PER_SECOND, STARTING_SECONDS

FOLDER = "RL_RECORDED"
"""Environment variable: where the files are."""
SUCCEEDED = Outcome(kind="Succeeded", reason="Trained", message="All steps.")


class RecordedReaders:
    """No readers."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def start(self, namespaces: tuple[str, ...]) -> None:
        """Nothing is swept."""

    def close(self) -> None:
        """Nothing was begun."""


class PassedPreflight:
    """Inputs that are in order."""

    def __init__(self, readers: object, **_: Any) -> None:
        pass

    def verdict(self, key: Key, spec: object, *, begun: bool = False) -> Verdict:
        """In order."""
        return Verdict(passed=True)

    def forget(self, key: Key) -> None:
        """Nothing is held."""


class RecordedRunProgress:
    """Readings of the record, polled as the stores are."""

    def __init__(
        self,
        readers: object,
        *,
        enqueue: Callable[[Key], None],
        clock: Callable[[], float],
        seconds: float,
    ) -> None:
        self._folder = os.environ[FOLDER]
        self._enqueue, self._clock, self._seconds = enqueue, clock, seconds
        self._started = time.time()
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[bytes, Reading]] = {}
        self._readers: dict[str, set[Key]] = {}

    def start(self) -> None:
        """Poll from now on."""
        threading.Thread(target=self._poll, daemon=True).start()

    def close(self) -> None:
        """Nothing is to be ended: the process ends."""

    def read(self, key: Key, run: str, secret: str, *, fresh: bool = False) -> Reading:
        """What the pods of a run have written when it was read last."""
        with self._lock:
            self._readers.setdefault(run, set()).add(key)
            known = self._latest.get(run)
        if known is None or fresh:
            text = self._text(run)
            known = (text, self._parsed(run, text))
            with self._lock:
                self._latest[run] = known
        return dataclasses.replace(known[1], now=time.time())

    def forget(self, key: Key) -> None:
        """Read no more for an object."""
        with self._lock:
            for run in [run for run, keys in self._readers.items() if key in keys]:
                self._readers[run].discard(key)
                if not self._readers[run]:
                    del self._readers[run]
                    self._latest.pop(run, None)

    def _poll(self) -> None:
        polled_at = self._clock()
        while True:
            time.sleep(min(STARTING_SECONDS, self._seconds))
            with self._lock:
                starting = {run: not known.run for run, (_, known) in self._latest.items()}
            due = self._clock() - polled_at >= max(self._seconds, len(starting) / RUNS_PER_SECOND)
            polled_at = self._clock() if due else polled_at
            for run in [run for run, starts in starting.items() if starts or due]:
                self._look(run)

    def _look(self, run: str) -> None:
        text = self._text(run)
        with self._lock:
            known = self._latest.get(run)
            if known is None or known[0] == text:
                return
            self._latest[run] = (text, self._parsed(run, text))
            readers = list(self._readers.get(run, ()))
        for key in readers:
            self._enqueue(key)

    def _text(self, run: str) -> bytes:
        """The record as it is; empty while nobody has written one."""
        try:
            with open(f"{self._folder}/{run}", "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _parsed(self, run: str, text: bytes) -> Reading:
        bucket: Reach = REACHED
        if not text:
            return Reading(store=REACHED, bucket=bucket)
        record = json.loads(text)
        samplers = tuple(self._sampler(run, pod, pool) for pod, pool in record["samplers"].items())
        return Reading(
            store=REACHED,
            bucket=bucket,
            run=self._run(run, record) if record["began"] else None,
            samplers=samplers,
            registrations=samplers,
        )

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

    def _run(self, run: str, record: dict[str, Any]) -> Run:
        policy = PolicyPointer(version=1, epoch=1, step=0, prefix=run, manifest_sha256="0" * 64)
        return Run(
            id=run,
            namespace="n",
            job="j",
            created_at=record["began"],
            steps=10,
            epoch=1,
            heartbeat_at=self._started,
            progress_at=record["began"],
            policy=policy,
            outcome=SUCCEEDED if record["over"] else None,
        )
