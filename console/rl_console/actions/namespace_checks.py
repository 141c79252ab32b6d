"""Checks of a namespace: Secret, reader, stores, and the user's rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_console.actions.finding import UNKNOWN, Finding, fault, good, warning
from rl_console.cluster.kube import Cluster
from rl_console.errors import NotAllowedError, NotFoundError
from rl_console.jobs import STORES_SECRET, JobObject, parse_status, stores_secret
from rl_console.view import condition, has_ended
from rl_contracts.errors import RefusedError
from rl_contracts.reader import IN_CLEAR
from rl_contracts.spec.resources import GROUP
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_contracts.stores.clients.settings import StoreSettings

READER = f"{GROUP}/component=reader"
STORES_PAGE = "docs/concepts/stores.md"
STORE_CONDITIONS = {"StateStoreReachable": "state store", "StorageReachable": "bucket"}
RIGHTS = {
    "list jobs": (GROUP, "rljobs", "", "list"),
    "create jobs": (GROUP, "rljobs", "", "create"),
    "change jobs": (GROUP, "rljobs", "", "patch"),
    "delete jobs": (GROUP, "rljobs", "", "delete"),
    "list pools": (GROUP, "samplerpools", "", "list"),
    "scale pools": (GROUP, "samplerpools", "scale", "patch"),
    "list pods": ("", "pods", "", "list"),
    "read logs": ("", "pods", "log", "get"),
    "evict pods": ("", "pods", "eviction", "create"),
}
"""What commands need: API group, resource, subresource, verb."""


def existence(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The namespace exists."""
    path = f"/api/v1/namespaces/{namespace}"
    try:
        cluster.api.request("GET", path, doing=f"reading namespace {namespace}")
    except NotFoundError:
        remedy = f"kubectl create namespace {namespace} {cluster.options()}".rstrip()
        yield fault("namespace", f"{namespace} does not exist", remedy)
        return
    yield good("namespace", f"{namespace} exists")


def secret(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The Secrets of the stores that jobs need are complete; their values are not shown."""
    needed = _needed_secrets(cluster, namespace)
    for name in sorted({STORES_SECRET, *needed}):
        yield _secret(cluster, namespace, name, needed=name in needed)


def _needed_secrets(cluster: Cluster, namespace: str) -> set[str]:
    """Names of the Secrets of jobs that go on or whose data are deleted with them.

    The default where no job needs one, or jobs cannot be listed, of which other checks tell.
    """
    try:
        jobs = (raw for raw in cluster.each_raw_job(namespace) if _needs_stores(raw))
        needed = {stores_secret(raw.get("spec") or {}) for raw in jobs}
    except (NotFoundError, NotAllowedError):
        needed = set()
    return needed or {STORES_SECRET}


def _needs_stores(raw: Mapping[str, Any]) -> bool:
    lifecycle = (raw.get("spec") or {}).get("lifecycle") or {}
    deletes_data = lifecycle.get("dataPolicy") == "Delete"
    return deletes_data or not has_ended(parse_status(RLJobStatus, raw.get("status")))


def _secret(cluster: Cluster, namespace: str, name: str, *, needed: bool) -> Finding:
    wrong, effect = (fault, "") if needed else (warning, "; jobs that name no other would stall")
    try:
        StoreSettings.from_mapping(cluster.secret(namespace, name))
    except NotFoundError:
        embedded = (
            "; or, with the chart's stores.embedded.enabled, add the namespace to stores.namespaces"
            if name == STORES_SECRET
            else ""
        )
        remedy = f"Create it{embedded}: {STORES_PAGE}"
        return wrong("secret", f"{namespace} has no Secret {name}{effect}", remedy)
    except RefusedError as error:
        remedy = f"{STORES_PAGE} lists the keys"
        message = error.refusal.message.removesuffix(".")
        return wrong("secret", f"{name}: {message}{effect or '.'}", remedy)
    return good("secret", f"{name} has the keys")


def reader(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The pods that read the stores for the operator are ready."""
    pods = [pod for pod in cluster.pods(namespace, READER) if pod.phase != "Succeeded"]
    if not pods:
        yield good("reader", "none runs; it comes with the first job")
    for pod in pods:
        if pod.ready:
            yield good("reader", f"{pod.name} is ready")
        else:
            detail = f"{pod.name} is not ready: {pod.trouble or pod.phase}"
            remedy = f"kubectl describe pod {pod.name} {cluster.options(namespace)}"
            yield fault("reader", detail, remedy)


def stores(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """What the jobs of the namespace say about its stores; the console asks no store itself."""
    jobs = [JobObject.parse(raw) for raw in cluster.raw_jobs(namespace)]
    for kind, name in STORE_CONDITIONS.items():
        conditions = [each for job in jobs if (each := condition(job.status, kind)) is not None]
        if conditions:
            yield _store(name, max(conditions, key=lambda each: each.last_transition_time))
        else:
            yield Finding(
                check=name,
                state=UNKNOWN,
                detail="no job of the namespace has asked it yet",
                remedy="Submit a job: it is checked before pods start",
            )


def _store(name: str, store_condition: Condition) -> Finding:
    detail = store_condition.message or store_condition.reason
    if store_condition.status == "True" and store_condition.reason != IN_CLEAR:
        return good(name, detail)
    remedy = f"docs/reference/conditions.md explains {store_condition.reason}"
    if store_condition.status == "True":
        return warning(name, detail, remedy)
    if store_condition.status == "Unknown":
        return Finding(check=name, state=UNKNOWN, detail=detail, remedy=remedy)
    return fault(name, detail, remedy)


def rights(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The user may do what the commands need."""
    missing = [name for name, right in RIGHTS.items() if not _may(cluster, namespace, right)]
    if missing:
        remedy = f"Ask for a Role in {namespace} with these rights"
        yield warning("rights", f"you may not {', '.join(missing)}", remedy)
    else:
        yield good("rights", "you may do what the commands need")


def _may(cluster: Cluster, namespace: str, right: tuple[str, str, str, str]) -> bool:
    names = ("group", "resource", "subresource", "verb")
    attributes = {"namespace": namespace, **dict(zip(names, right, strict=True))}
    answer = cluster.api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        doing="asking for your rights",
        body={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    return bool(answer["status"]["allowed"])
