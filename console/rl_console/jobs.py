"""Objects of the API server that the console shows, as far as it needs them."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.status import RLJobStatus, SamplerPoolStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObject:
    """An RLJob as the API server has it."""

    name: str
    namespace: str
    uid: str
    generation: int
    status: RLJobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObject:
    """A SamplerPool as the API server has it."""

    name: str
    job: str
    replicas: int
    status: SamplerPoolStatus


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
