"""The contract tier's API server, stores and operator processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.rl_operator.conftest import (
    api,
    kubelet,
    operators_api,
    rights,
    start,
    with_trainer_kind,
    world,
)
from tests.contract.rl_operator.jobs.conftest import queue, with_kueue
from tests.kube.api_front import ApiFront, fronting
from tests.kube.apiserver import ApiServer

__all__ = [
    "api",
    "kubelet",
    "operators_api",
    "queue",
    "rights",
    "start",
    "with_kueue",
    "with_trainer_kind",
    "world",
]


@pytest.fixture
def front(with_trainer_kind: ApiServer) -> Iterator[ApiFront]:
    with fronting(with_trainer_kind) as opened:
        yield opened
