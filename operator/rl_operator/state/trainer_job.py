"""The trainer's job object of one attempt: the state of a PyTorchJob."""

from __future__ import annotations

from dataclasses import dataclass

from rl_operator.kube.metadata import Child, Raw
from rl_operator.kube.names import SPEC_VOLUME
from rl_operator.kube.redact import redacted
from rl_operator.kube.timestamps import parse_time
from rl_operator.kube.trainer_state import State, state_of, true_conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """The trainer's job object of one attempt."""

    name: str
    uid: str
    attempt: int
    created_at: float
    ran_at: float | None = None
    """When it last said that its pods run or are restarted, in seconds since 1970; None: never."""
    state: State
    message: str = ""
    deleting: bool = False
    config: str = ""
    """The ConfigMap from which its pods read the job's spec; empty where that is not known."""
    warning: str = ""
    """The last Warning Event about it, with a remedy, while it has no pod."""

    @classmethod
    def parse(cls, child: Child) -> TrainerJob:
        """Read a PyTorchJob's state from its conditions."""
        state = state_of(child.raw)
        return cls(
            name=child.meta.name,
            uid=child.meta.uid,
            attempt=child.meta.attempt,
            created_at=child.meta.created_at,
            ran_at=_ran_at(child.raw),
            state=state,
            message=redacted(true_conditions(child.raw).get(state, {}).get("message", "")),
            deleting=child.meta.deleted_at is not None,
            config=_config_of(child.raw),
        )


def _ran_at(raw: Raw) -> float | None:
    """When a condition that is only written once pods have run changed last."""
    conditions = raw.get("status", {}).get("conditions") or []
    times = (
        parse_time(condition.get("lastTransitionTime"))
        for condition in conditions
        if condition["type"] in ("Running", "Restarting")
    )
    return max((time for time in times if time is not None), default=None)


def _config_of(raw: Raw) -> str:
    """Name of the ConfigMap with the job's spec. Others may have edited any part of the object."""
    pod = raw.get("spec", {}).get("pytorchReplicaSpecs", {}).get("Worker", {}).get("template", {})
    volumes = (pod.get("spec") or {}).get("volumes") or []
    sources = (
        volume.get("configMap") or {} for volume in volumes if volume.get("name") == SPEC_VOLUME
    )
    return next((str(source.get("name", "")) for source in sources), "")
