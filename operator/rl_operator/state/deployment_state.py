"""What the Deployment controller says of a pool's pods."""

from __future__ import annotations

from dataclasses import dataclass

from rl_operator.kube import names
from rl_operator.kube.metadata import Raw
from rl_operator.kube.redact import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    """The state of a Deployment; without arguments that of one which does not exist."""

    exists: bool = False
    declared: int = 0
    """``spec.replicas``."""
    observed: bool = True
    """Whether its controller has reported on this generation."""
    epoch: int = 0
    """Of a shared pool: of the assignment that it was written for."""
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    uncreated: str = ""
    """Why it cannot create a pod, e.g. a quota; empty while it can."""
    stuck: str = ""
    """Why its rollout is past its deadline; empty while it is not."""
    behind: bool = False
    """The counts are those of an earlier generation."""

    @classmethod
    def parse(cls, raw: Raw) -> DeploymentState:
        """Parse a Deployment."""
        status, generation = raw.get("status", {}), raw["metadata"].get("generation", 0)
        epoch = raw["metadata"].get("annotations", {}).get(names.ASSIGNMENT_ANNOTATION, "")
        return cls(
            exists=True,
            observed=status.get("observedGeneration", 0) >= generation,
            epoch=int(epoch) if epoch.isdecimal() else 0,
            declared=raw["spec"].get("replicas", 1),
            replicas=status.get("replicas", 0),
            ready=status.get("readyReplicas", 0),
            updated=status.get("updatedReplicas", 0),
            uncreated=redacted(_message(status, "ReplicaFailure", "True")),
            stuck=redacted(_message(status, "Progressing", "False")),
            behind=status.get("observedGeneration", generation) < generation,
        )


def _message(status: Raw, kind: str, truth: str) -> str:
    """Message of a condition that has this status; else empty."""
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    condition = conditions.get(kind, {})
    return str(condition.get("message", "")) if condition.get("status") == truth else ""
