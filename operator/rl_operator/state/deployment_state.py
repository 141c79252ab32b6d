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
    stuck: str = ""
    """Why it makes no progress; empty while it does."""
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
            stuck=redacted(_stuck(status)),
            behind=status.get("observedGeneration", generation) < generation,
        )


def _stuck(status: Raw) -> str:
    """Message of a failure to create pods, else of a rollout past its deadline."""
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    failure = conditions.get("ReplicaFailure", {})
    message = failure.get("message", "") if failure.get("status") == "True" else ""
    progressing = conditions.get("Progressing", {})
    if not message and progressing.get("status") == "False":
        message = progressing.get("message", "")
    return str(message)
