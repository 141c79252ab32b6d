"""Serves a model of a job: makes the endpoint, waits for it, removes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rl_console.actions.models.choice import OF_JOB
from rl_console.actions.models.endpoint import NAME_LABEL, Endpoint
from rl_console.actions.models.pod_state import PodState, newest_pod
from rl_console.actions.models.waiting import Wait, note
from rl_console.actions.models.working import REFUSED_EXIT
from rl_console.cluster.api import SERVER_SIDE_APPLY
from rl_console.cluster.kube import Cluster
from rl_console.errors import NotFoundError, RequestRefusedError
from rl_console.output import lines

FIELD_MANAGER = "kubectl-rl"
PLACES = {
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
}


def serve_model(cluster: Cluster, endpoint: Endpoint, *, seconds: float) -> str:
    """Make or change an endpoint, and wait until it answers; returns what to tell the user.

    Args:
        cluster: where it is made.
        endpoint: what is served.
        seconds: to wait; 0: not at all.

    Raises:
        RequestRefusedError: the model cannot be staged.
        TimeOverError: it does not answer in time. It goes on starting.
    """
    manifests = endpoint.manifests()
    namespace, name = endpoint.choice.job.namespace, endpoint.name
    for manifest in manifests:
        cluster.api.request(
            "PATCH",
            f"{_place(manifest['kind'], namespace)}/{name}",
            doing=f"applying {manifest['kind']} {namespace}/{name}",
            body=manifest,
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            content_type=SERVER_SIDE_APPLY,
        )
        note(f"{manifest['kind'].lower()}/{name} applied")
    if seconds:
        _wait(cluster, namespace, name, replicas=endpoint.replicas, seconds=seconds)
    return described(endpoint, options=cluster.options(namespace))


def described(endpoint: Endpoint, *, options: str) -> str:
    """Where the endpoint is, and how to ask it; each line fits 80 columns.

    Args:
        endpoint: what is served.
        options: of a command, as ``Cluster.options`` gives them. Long ones make a longer line.
    """
    namespace, name = endpoint.choice.job.namespace, endpoint.name
    key = f"-H 'Authorization: Bearer KEY' {chr(92)}\n  " if endpoint.api_key_secret else ""
    facts = lines(
        [
            ("endpoint", f"http://{name}.{namespace}.svc/v1"),
            ("serves", f"{endpoint.choice.described} of {endpoint.choice.job.name}"),
            ("from", f"pods of namespace {namespace}; elsewhere through a port-forward:"),
        ]
    )
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "Hi"}]})
    return (
        f"{facts}\n"
        f"  kubectl port-forward service/{name} 8000:80 {options}\n"
        "  curl localhost:8000/v1/chat/completions \\\n"
        f"  {key}-H 'Content-Type: application/json' \\\n"
        f"  -d '{body}'"
    )


def stop_serving(cluster: Cluster, namespace: str, job: str, name: str) -> Iterator[str]:
    """Delete an endpoint; yields a line for each object that is gone.

    Raises:
        NotFoundError: there is none.
        RequestRefusedError: the name is of something else.
    """
    present_objects(cluster, namespace, name, job)
    gone = 0
    for kind in reversed(PLACES):
        try:
            cluster.api.request(
                "DELETE",
                f"{_place(kind, namespace)}/{name}",
                doing=f"deleting {kind} {namespace}/{name}",
                body={"propagationPolicy": "Background"},
            )
        except NotFoundError:
            continue
        gone += 1
        yield f"{kind.lower()}/{name} deleted"
    if not gone:
        doing = f"looking for endpoint {namespace}/{name}"
        raise NotFoundError(doing=doing, remedy=f"Nothing is served under this name for {job}")


def present_objects(
    cluster: Cluster, namespace: str, name: str, job: str
) -> dict[str, Mapping[str, Any]]:
    """The objects of an endpoint that are there, by kind.

    Raises:
        RequestRefusedError: one of this name was not made for the job.
    """
    objects: dict[str, Mapping[str, Any]] = {}
    for kind in PLACES:
        try:
            present = cluster.api.request(
                "GET",
                f"{_place(kind, namespace)}/{name}",
                doing=f"reading {kind} {namespace}/{name}",
            )
        except NotFoundError:
            continue
        if (present["metadata"].get("labels") or {}).get(OF_JOB) != job:
            raise RequestRefusedError(
                doing=f"serving under the name {name}",
                cause=f"{kind} {namespace}/{name} is not of an endpoint of {job}",
                remedy="Choose another name with --name",
            )
        objects[kind] = present
    return objects


def _wait(cluster: Cluster, namespace: str, name: str, *, replicas: int, seconds: float) -> None:
    waits = Wait(seconds=seconds)
    while not _is_ready(cluster, namespace, name, replicas):
        waits.tell(_doing(cluster, namespace, name))
        waits.pause(
            f"endpoint {name} does not answer",
            remedy="It goes on starting; repeat the command to wait, or end it with --stop",
        )


def _is_ready(cluster: Cluster, namespace: str, name: str, replicas: int) -> bool:
    """Whether all pods of the newest template are ready."""
    doing = f"reading Deployment {namespace}/{name}"
    raw = cluster.api.request("GET", f"{_place('Deployment', namespace)}/{name}", doing=doing)
    status = raw.get("status") or {}
    seen = status.get("observedGeneration", 0) >= raw["metadata"]["generation"]
    counts = [status.get(key) or 0 for key in ("replicas", "updatedReplicas", "readyReplicas")]
    return seen and counts == [replicas] * len(counts)


def _doing(cluster: Cluster, namespace: str, name: str) -> str:
    """What the newest pod does; raises RequestRefusedError where it cannot succeed."""
    label, of = f"{NAME_LABEL}={name}", f"endpoint {namespace}/{name}"
    newest = newest_pod(cluster, namespace, label=label, of=of)
    if newest is None:
        return PodState().doing
    return pod_doing(newest, options=cluster.options(namespace))


def pod_doing(raw: Mapping[str, Any], *, options: str) -> str:
    """What a pod of an endpoint does.

    Args:
        raw: the pod, as the API server has it.
        options: of a command in a message, as ``Cluster.options`` gives them.

    Raises:
        RequestRefusedError: its model cannot be staged, with the reason.
    """
    status, name = raw.get("status") or {}, raw["metadata"]["name"]
    staging: list[Mapping[str, Any]] = status.get("initContainerStatuses") or []
    for each in staging:
        for state in (each.get("state") or {}, each.get("lastState") or {}):
            ended = state.get("terminated") or {}
            if ended.get("exitCode") == REFUSED_EXIT:
                cause = str(ended.get("message") or "it left no message").strip()
                raise RequestRefusedError(doing=f"staging the model in pod {name}", cause=cause)
    if any("running" in (each.get("state") or {}) for each in staging):
        return f"pod {name}: stages the model"
    states = {each["name"]: each for each in status.get("containerStatuses") or []}
    engine = states.get("engine") or {}
    if "running" in (engine.get("state") or {}):
        times = engine.get("restartCount") or 0
        log = f"kubectl logs {name} engine {options}"
        again = f", after {times} restarts: `{log}`" if times else ""
        return f"pod {name}: the engine starts{again}"
    return PodState.of(raw).doing


def print_manifests(endpoint: Endpoint) -> None:
    """Print the objects as YAML, e.g. for a repository."""
    import yaml

    yaml.safe_dump_all(endpoint.manifests(), sys.stdout, sort_keys=False)


def _place(kind: str, namespace: str) -> str:
    return PLACES[kind].format(namespace=namespace)
