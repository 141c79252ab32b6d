"""Mounted into a trainer's pod as Python's ``sitecustomize``: ends its process as told.

``FAULTS`` says how each attempt ends before it has begun, e.g. ``1=exit:42 2=succeed *=memory``;
without an entry it is the real trainer. ``succeed`` is a trainer without training: it takes the
run, leaves a model and says that all is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_contracts.stores.connect import Stores

BLOCK = 1 << 24
"""Bytes that are taken at a time."""
DISK_BLOCKS = 10


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
    from rl_contracts.stores.connect import Stores
    from rl_contracts.stores.settings import StoreSettings

    env = TrainerEnv.parse(os.environ)
    settings = StoreSettings.from_folder(env.stores_folder)
    with contextlib.closing(Stores.connect(settings, patience_seconds=60.0)) as stores:
        stores.mongo.ensure_indexes()
        if stores.runs.get(env.run) is None:
            now = stores.mongo.now()
            run = Run(id=env.run, namespace=env.namespace, job=env.job, created_at=now, steps=1)
            stores.runs.create(run)
        yield stores, env.run, stores.runs.take_epoch(env.run).epoch


def succeed() -> None:
    """Write what a trainer writes that has come to its end."""
    from rl_contracts.documents.run import Outcome

    with taken() as (stores, run, epoch):
        final = f"{stores.run_prefix(run)}final/config.json"
        stores.objects.put(final, b"{}")
        outcome = Outcome(
            kind="Succeeded",
            reason="Trained",
            message="Nothing was to be done.",
            final_model=f"s3://the-bucket/{final}",
        )
        stores.runs.finish(run, epoch=epoch, outcome=outcome)


if "rl_trainer" in sys.orig_argv:
    told = dict(one.split("=", 1) for one in os.environ.get("FAULTS", "").split())
    now = told.get(os.environ["RL_ATTEMPT"], told.get("*", ""))
    if now:
        strike(now)
