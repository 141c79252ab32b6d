"""A small admitter of our own: writes of a Workload's status what Kueue 0.15 writes.

Kueue's scheduler itself is in no registry that this project builds from; its schema is.
"""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import yaml

from rl_local import versions
from rl_local.build import binaries

Raw = dict[str, Any]
Words = tuple[str, bool, str, str]

FLAVOR = "spot"
FOLDER = "config/components/crd/bases"
PLURALS = ("workloads", "resourceflavors", "workloadpriorityclasses")
VERSION = "v1beta2"


def definitions() -> list[Raw]:
    """Kueue's own CRDs, with the version that we write alone: others need its webhook."""
    module = Path(binaries.module_folder(binaries.KUEUE, versions.KUEUE))
    crds = []
    for plural in PLURALS:
        text = (module / FOLDER / f"kueue.x-k8s.io_{plural}.yaml").read_text()
        crd = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        kept = [version for version in crd["spec"]["versions"] if version["name"] == VERSION]
        crd["spec"]["versions"] = [{**version, "storage": True} for version in kept]
        crds.append({key: crd[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    return crds


def flavor(name: str = FLAVOR) -> Raw:
    """A ResourceFlavor of tainted nodes with a label."""
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    return {
        "apiVersion": f"kueue.x-k8s.io/{VERSION}",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": {"pool": name}, "tolerations": [toleration]},
    }


def pending(workload: Raw, message: str, *, reason: str = "Pending") -> Raw:
    """The status of a Workload for which there is no quota."""
    return _with_conditions(workload, ("QuotaReserved", False, reason, message))


def admitted(workload: Raw, *, name: str = FLAVOR, counts: dict[str, int] | None = None) -> Raw:
    """The status of a Workload that is admitted with one flavor for all that it asks."""
    words: list[Words] = [
        ("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue cq"),
        ("Admitted", True, "Admitted", "The workload is admitted"),
    ]
    for condition in workload.get("status", {}).get("conditions", []):
        if condition["type"] in ("Evicted", "Preempted") and condition["status"] == "True":
            words.append(
                (condition["type"], False, "QuotaReserved", f"Previously: {condition['message']}")
            )
    status = _with_conditions(workload, *words)
    sets = workload["spec"]["podSets"]
    status["admission"] = {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": pod_set["name"],
                "flavors": {"cpu": name, "memory": name},
                "count": (counts or {}).get(pod_set["name"], pod_set["count"]),
            }
            for pod_set in sets
        ],
    }
    return status


def evicted(
    workload: Raw, *, reason: str = "Preempted", message: str = "Preempted to make room"
) -> Raw:
    """The status of an admitted Workload that is to give its quota back."""
    status = _with_conditions(workload, ("Evicted", True, reason, message))
    return {**status, "admission": workload["status"]["admission"]}


def requeued(workload: Raw) -> Raw:
    """The status of one that Kueue queues again by itself, as after a stopped ClusterQueue."""
    return _with_conditions(
        workload, ("Requeued", True, "ClusterQueueRestarted", "The queue goes on.")
    )


def condition(workload: Raw, kind: str) -> Raw:
    """A condition of a Workload, empty without it."""
    conditions = workload.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def holds_quota(workload: Raw | None) -> bool:
    """Whether quota is taken by a Workload."""
    if workload is None:
        return False
    reserved = condition(workload, "QuotaReserved").get("status") == "True"
    return reserved and condition(workload, "Finished").get("status") != "True"


def admissible(workload: Raw) -> bool:
    """Whether Kueue would look for quota for it now."""
    waits = condition(workload, "Requeued").get("status", "True") == "True"
    over = condition(workload, "Finished").get("status") == "True"
    active = workload["spec"].get("active", True)
    return bool(active and waits and not over and not holds_quota(workload))


def _with_conditions(workload: Raw, *words: Words) -> Raw:
    status: Raw = copy.deepcopy(workload.get("status", {}))
    known = {condition["type"]: condition for condition in status.get("conditions", [])}
    for kind, true, reason, message in words:
        before = known.get(kind, {})
        same = before.get("status") == str(true)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        known[kind] = {
            "type": kind,
            "status": str(true),
            "reason": reason,
            "message": message,
            "lastTransitionTime": before["lastTransitionTime"] if same else now,
        }
    status["conditions"] = list(known.values())
    return status
