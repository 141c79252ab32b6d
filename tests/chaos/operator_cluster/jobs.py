"""Jobs that need no sampler, whose trainer is the real one, and how it is made to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_contracts.spec.status import RLJobStatus
from tests.cluster.manifests import short_job
from tests.waiting import HUNG_SECONDS

FAULTS = "faults"
"""Name of the ConfigMap with what ends a trainer."""
FOLDER = "/faults"
REQUESTS = {"cpu": "40m", "memory": "64Mi"}
"""Little, for many of them stand side by side on one node."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS


def fault_config() -> dict[str, Any]:
    """What is mounted where Python looks for its ``sitecustomize``."""
    text = (Path(__file__).parent / "strike.py").read_text()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": FAULTS},
            "data": {"sitecustomize.py": text}}  # fmt: skip


def pod_template(faults: str = "") -> dict[str, Any]:
    """What is laid over a trainer's pod: its attempts end as ``strike.py`` describes."""
    container = {
        "name": "pytorch",
        "env": [
            {"name": "PYTHONPATH", "value": f"{FOLDER}:/opt/app"},
            {"name": "FAULTS", "value": faults},
        ],
        "volumeMounts": [{"name": FAULTS, "mountPath": FOLDER, "readOnly": True}],
    }
    volume = {"name": FAULTS, "configMap": {"name": FAULTS}}
    return {"spec": {"containers": [container], "volumes": [volume]}}


def taught_job(name: str, *, faults: str = "", **changes: Any) -> dict[str, Any]:
    """A job of objective SFT: a trainer alone, whose few steps take a second.

    Args:
        name: of the job.
        faults: by attempt, e.g. ``1=exit:42``.
        changes: values by path, as ``short_job`` takes them.
    """
    small = {
        "algorithm": {"objective": "SFT"},
        "samplers": None,
        "reward": None,
        "agent": None,
        "trainer__resources": {"requests": REQUESTS, "limits": {"memory": "3Gi"}},
        "trainer__podTemplate": pod_template(faults),
        "lifecycle__suspendGraceSeconds": 20,
    }  # fmt: skip
    return short_job(name, **{**small, **changes})


def attempts(status: RLJobStatus) -> list[tuple[str, str]]:
    """Result and reason of each attempt."""
    return [(one.result, one.reason) for one in status.attempts]
