"""What is written of a status that is computed look by look."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import RLJobStatus
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.kube.kinds import Kind
from rl_operator.state.progress import Reach, Reading
from tests.unit.rl_operator.builders import a_meta

S = TypeVar("S", RLJobStatus, SamplerPoolStatus)
SECONDS = 5


class _Cluster:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def apply(self, _kind: Kind, manifest: dict[str, Any], **_: object) -> None:
        self.written.append(manifest["status"])


def written(
    kind: Kind,
    status: S,
    readings: Iterable[Reading],
    compute: Callable[[S, Reading], S],
    is_urgent: Callable[[S, S], bool],
) -> list[dict[str, Any]]:
    """Statuses that are written by looks ``SECONDS`` apart, each with what the stores say then."""
    cluster: Any = _Cluster()
    now = 0.0
    writer = StatusWriter(cluster, clock=lambda: now, seconds=SECONDS)
    for reading in readings:
        now += SECONDS
        after = compute(status, reading)
        urgent = is_urgent(status, after)
        waited = writer.write(kind, a_meta(), before=status, after=after, urgent=urgent)
        status = after if waited is None else status
    return list(cluster.written)


def outage(readings: int) -> list[Reading]:
    """A document store that is away: a client's words differ from one look to the next."""
    words = (f"db:27017: Connection refused ({index})" for index in range(readings))
    return [Reading(store=Reach("False", "StateStoreUnreachable", word)) for word in words]
