"""The parts of RLJobs, SamplerPools and workloads that the console shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import RLJobStatus

Status = TypeVar("Status", RLJobStatus, SamplerPoolStatus)
STORES_SECRET = "rl-operator-stores"
"""Of the stores of jobs that name none."""


def stores_secret(spec: Mapping[str, Any]) -> str:
    """Name of the Secret of a job's stores."""
    return str((spec.get("storage") or {}).get("secretName") or STORES_SECRET)


def parse_status(model: type[Status], written: Mapping[str, Any] | None) -> Status:
    """Parse a status, also that of a newer operator: what this version cannot read is left out.

    Args:
        model: of the status.
        written: as the API server has it.
    """
    kept = dict(written or {})
    try:
        return model.model_validate(kept, extra="ignore")
    except ValidationError as error:
        unread = [each["loc"] for each in error.errors(include_url=False) if each["loc"]]
        return model.model_validate(_without(kept, unread), extra="ignore")


def _without(written: Mapping[str, Any], unread: Sequence[tuple[int | str, ...]]) -> dict[str, Any]:
    """A status without what is unread: of a list, e.g. conditions, single items."""
    items = {place[:2] for place in unread if len(place) > 1 and isinstance(place[1], int)}
    fields = {place[0] for place in unread if place[:2] not in items}
    return {
        key: [item for index, item in enumerate(value) if (key, index) not in items]
        if isinstance(value, list)
        else value
        for key, value in written.items()
        if key not in fields
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObject:
    """An RLJob as the API server has it."""

    name: str
    namespace: str
    uid: str
    generation: int
    status: RLJobStatus

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> JobObject:
        """Parse an RLJob."""
        metadata = raw["metadata"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            status=parse_status(RLJobStatus, raw.get("status")),
        )

    @property
    def run(self) -> str:
        """ID of its run: the run that it resumes, else its own UID."""
        return self.status.run_id or self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObject:
    """A SamplerPool as the API server has it."""

    name: str
    job: str
    """Job that it serves now; empty for a shared pool that no job uses."""
    replicas: int
    status: SamplerPoolStatus
    beside: tuple[str, ...] = ()
    """Other jobs that it serves at the same time."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> PoolObject:
        """Parse a SamplerPool."""
        status = parse_status(SamplerPoolStatus, raw.get("status"))
        holder = status.assignment.job if status.assignment is not None else ""
        return cls(
            name=raw["metadata"]["name"],
            job=raw["spec"].get("job") or holder,
            replicas=raw["spec"].get("replicas", 1),
            status=status,
            beside=tuple(tenant.job for tenant in status.beside),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Deployment or StatefulSet and how many of its pods are ready."""

    kind: str
    name: str
    desired: int
    ready: int
    current: bool
    """The controller has seen the newest specification and replaced all older pods."""

    @property
    def settled(self) -> bool:
        """All pods of the newest specification are ready."""
        return self.current and self.ready >= self.desired
