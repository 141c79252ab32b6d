"""Everything that the API server holds: what changed, and what is left of a job."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rl_contracts.spec.resources import GROUP
from tests.cluster.lab import OPERATOR, SYSTEM, Lab
from tests.cluster.waiting import until
from tests.waiting import throughout

SETTLED_SECONDS = 5.0

# Renewed by their holders all the time, and shown twice or not stored.
UNCOUNTED = {"leases.coordination.k8s.io", "events.events.k8s.io", "componentstatuses"}


@dataclass(frozen=True)
class Item:
    """An object's identity and how often it was written."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    metadata: str
    """All of its metadata as JSON."""


def items(lab: Lab, *, namespaces: set[str]) -> dict[str, Item]:
    """Objects of some namespaces by uid, Leases left out; no namespaces: those of the cluster."""
    scope = "true" if namespaces else "false"
    named = lab.kubectl("api-resources", "--verbs=list", f"--namespaced={scope}", "-o", "name")
    kinds = sorted(set(named.split()) - UNCOUNTED)
    listed = json.loads(lab.kubectl("get", ",".join(kinds), "--all-namespaces", "-o", "json"))
    read = [
        Item(
            kind=item["kind"],
            namespace=item["metadata"].get("namespace", ""),
            name=item["metadata"]["name"],
            uid=item["metadata"]["uid"],
            resource_version=item["metadata"]["resourceVersion"],
            metadata=json.dumps(item["metadata"]),
        )
        for item in listed["items"]
    ]
    return {child.uid: child for child in read if child.namespace in (namespaces or {""})}


def changed(before: dict[str, Item], after: dict[str, Item]) -> list[str]:
    """What was written between two snapshots; an Event that is gone was not: it has expired."""
    written = [
        f"{child.kind} {child.namespace}/{child.name}"
        for uid, child in after.items()
        if uid not in before or before[uid].resource_version != child.resource_version
    ]
    gone = [
        f"{child.kind} {child.name} is gone"
        for uid, child in before.items()
        if uid not in after and child.kind != "Event"
    ]
    return sorted(written + gone)


def left_behind(lab: Lab, *, job: str, uid: str) -> list[str]:
    """Objects that still name a deleted job; events are left out, they end by themselves."""
    inside = items(lab, namespaces={lab.namespace}).values()
    outside = items(lab, namespaces=set()).values()
    return sorted(
        f"{child.kind} {child.name}"
        for child in [*inside, *outside]
        if child.kind != "Event" and (uid in child.metadata or child.name.startswith(f"{job}-"))
    )


def api_writes(lab: Lab, group: str) -> dict[str, int]:
    """Write requests that the API server has answered for a group, by verb and resource."""
    writes: dict[str, int] = {}
    for line in lab.kubectl("get", "--raw", "/metrics").splitlines():
        if not line.startswith("apiserver_request_total{") or f'group="{group}"' not in line:
            continue
        labels, value = line.removeprefix("apiserver_request_total").rsplit(" ", 1)
        verb = labels.split('verb="', 1)[1].split('"', 1)[0]
        resource = labels.split('resource="', 1)[1].split('"', 1)[0]
        if verb in ("APPLY", "PATCH", "PUT", "POST", "DELETE"):
            key = f"{verb} {resource}"
            writes[key] = writes.get(key, 0) + int(float(value))
    return writes


def check_rest(lab: Lab, *, seconds: float) -> None:
    """Once the namespace is at rest a new operator writes nothing there, nor to our kinds."""
    before: dict[str, Item] = {}

    def written() -> str:
        return ", ".join(changed(before, items(lab, namespaces={lab.namespace})))

    def settled() -> bool:
        nonlocal before
        before = items(lab, namespaces={lab.namespace})
        throughout(lambda: "", seconds=SETTLED_SECONDS)
        return not written()

    until(settled, what="the namespace to be at rest")
    writes = api_writes(lab, GROUP)
    lab.kill(lab.system_pod(OPERATOR).name, namespace=SYSTEM)
    lab.system_pod(OPERATOR)
    throughout(written, seconds=seconds, interval=5.0)
    assert api_writes(lab, GROUP) == writes
