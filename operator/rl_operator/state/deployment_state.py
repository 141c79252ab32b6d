"""What the Deployment controller says, parsed."""

from __future__ import annotations

from rl_operator.kube import names
from rl_operator.kube.metadata import Raw
from rl_operator.kube.redact import redacted
from rl_operator.state.snapshot import DeploymentState


def deployment_state(raw: Raw) -> DeploymentState:
    """Parse a Deployment."""
    status, generation = raw.get("status", {}), raw["metadata"].get("generation", 0)
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    progressing = conditions.get("Progressing", {})
    failure = conditions.get("ReplicaFailure", {})
    stuck = failure.get("message", "") if failure.get("status") == "True" else ""
    if not stuck and progressing.get("status") == "False":
        stuck = progressing.get("message", "")
    epoch = raw["metadata"].get("annotations", {}).get(names.ASSIGNMENT_ANNOTATION, "")
    return DeploymentState(
        there=True,
        seen=status.get("observedGeneration", 0) >= generation,
        epoch=int(epoch) if epoch.isdecimal() else 0,
        declared=raw["spec"].get("replicas", 1),
        replicas=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        updated=status.get("updatedReplicas", 0),
        stuck=redacted(stuck),
        behind=status.get("observedGeneration", generation) < generation,
    )
