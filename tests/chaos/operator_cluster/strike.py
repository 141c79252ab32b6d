"""Mounted into a trainer's pod as Python's ``sitecustomize``: ends its process on demand.

``FAULTS`` says how each attempt ends before it has begun, e.g. ``1=exit:42 2=succeed *=memory``;
a fault that is written to ``/tmp/fault`` strikes at once. Without either it is the real trainer.
``work``, ``linger`` and ``succeed`` are trainers without training that take the run. The first
beats until it is told to end, the second until it is killed, for it does not listen, and both until
another fault strikes; the third leaves a model and says that all is done. Each step of the real one
lasts ``PACE`` seconds at least: it must not be over before something happens to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_contracts.stores.connect import Stores

ORDER = "/tmp/fault"
SOON_SECONDS = 0.05
BLOCK = 1 << 24
"""Bytes that are taken at a time."""
DISK_BLOCKS = 10
TERMINATED = 143
BEAT_SECONDS = 2.0


def strike(fault: str) -> None:
    """End the process; one that hangs, or whose end is the kubelet's affair, never returns."""
    sys.stderr.write(f"the fault {fault} strikes\n")
    sys.stderr.flush()
    kind, _, value = fault.partition(":")
    if kind == "exit":
        os._exit(int(value))
    if kind == "succeed":
        succeed()
        os._exit(0)
    if kind in ("work", "linger"):
        work(listens=kind == "work")
    if kind == "segfault":  # a signal of its own would not touch a pod's first process
        ctypes.string_at(0)
    if kind == "memory":
        held = []
        while True:
            held.append(b"1" * BLOCK)
    if kind == "disk":
        with open("/tmp/full", "wb") as file:
            for _ in range(DISK_BLOCKS):
                file.write(b"1" * BLOCK)
    while True:
        time.sleep(1)


@contextlib.contextmanager
def taken() -> Iterator[tuple[Stores, str, int]]:
    """The stores, and the run of whose next epoch this process has taken hold."""
    from rl_contracts.documents.run import Run
    from rl_contracts.env import TrainerEnv
    from rl_contracts.stores.clients.settings import StoreSettings
    from rl_contracts.stores.connect import Stores

    env = TrainerEnv.parse(os.environ)
    settings = StoreSettings.from_folder(env.stores_folder)
    with contextlib.closing(Stores.connect(settings, patience_seconds=60.0)) as stores:
        stores.mongo.ensure_indexes()
        if stores.runs.get(env.run) is None:
            now = stores.mongo.now()
            run = Run(id=env.run, namespace=env.namespace, job=env.job, created_at=now, steps=1)
            stores.runs.create(run)
        yield stores, env.run, stores.runs.take_epoch(env.run).epoch


def work(*, listens: bool) -> None:
    """Take the run and beat; whether until SIGTERM, of which the first process needs no notice."""
    if listens:
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(TERMINATED))
    with taken() as (stores, run, epoch):
        while True:
            stores.runs.heartbeat(run, epoch=epoch, phase="Working")
            time.sleep(BEAT_SECONDS)


def succeed() -> None:
    """Write what a trainer writes that has come to its end."""
    from rl_contracts.documents.run import Outcome

    with taken() as (stores, run, epoch):
        stores.runs.heartbeat(run, epoch=epoch, phase="Ending")
        final = f"{stores.run_prefix(run)}final/config.json"
        stores.objects.put(final, b"{}")
        outcome = Outcome(
            kind="Succeeded",
            reason="Trained",
            message="Nothing was to be done.",
            final_model=f"s3://the-bucket/{final}",
        )
        stores.runs.finish(run, epoch=epoch, outcome=outcome)


def pace(seconds: float) -> None:
    """Make the trainer sleep whenever it logs a step."""
    make = logging.getLogRecordFactory()

    def paced(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        if str(record.msg).startswith("step %d of "):
            time.sleep(seconds)
        return record

    logging.setLogRecordFactory(paced)


def listen() -> None:
    """Wait for the order."""
    while not os.path.exists(ORDER):
        time.sleep(SOON_SECONDS)
    with open(ORDER) as file:
        strike(file.read().strip())


if "rl_trainer" in sys.orig_argv:
    faults = dict(part.split("=", 1) for part in os.environ.get("FAULTS", "").split())
    now = faults.get(os.environ["RL_ATTEMPT"], faults.get("*", ""))
    # Signals are the trainer's own: this thread takes none.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    threading.Thread(target=listen, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if now:
        strike(now)
    pace(float(os.environ["PACE"]))
