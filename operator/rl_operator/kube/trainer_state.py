"""Whether a PyTorchJob has ended, by its conditions."""

from __future__ import annotations

from typing import Literal

from rl_operator.kube.metadata import Raw

State = Literal["Active", "Succeeded", "Failed"]


def state_of(raw: Raw) -> State:
    """Whether a PyTorchJob has ended, and how. The state of its pods is not part of it."""
    true = true_conditions(raw)
    return "Succeeded" if "Succeeded" in true else "Failed" if "Failed" in true else "Active"


def true_conditions(raw: Raw) -> dict[str, Raw]:
    """Conditions whose status is True, by type."""
    conditions = raw.get("status", {}).get("conditions") or []
    return {
        condition["type"]: condition for condition in conditions if condition["status"] == "True"
    }
