"""The contract tier's API server, stores and operator processes."""

from __future__ import annotations

from tests.contract.rl_operator.conftest import (
    api,
    kubelet,
    operators_api,
    rights,
    start,
    with_trainer_kind,
    world,
)
from tests.contract.rl_operator.jobs.test_queue import queue, with_kueue
from tests.contract.rl_operator.process.test_watches import front

__all__ = [
    "api",
    "front",
    "kubelet",
    "operators_api",
    "queue",
    "rights",
    "start",
    "with_kueue",
    "with_trainer_kind",
    "world",
]
