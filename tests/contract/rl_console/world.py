"""Jobs in the states that a person meets, written to a real API server; no operator runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube.apiserver import ApiServer, apply, kubeconfig
from tests.samples.manifests import a_job

NAMESPACE = "console"
EARLIER = "2026-11-25T09:00:00Z"
LATER = "2026-11-25T10:30:00Z"
DEAD_SERVER = "https://127.0.0.1:9"
"""The port `discard`, which nothing serves here."""
HOSTILE = "\x1b[31mred\u202e <b>bold</b>"


@dataclass(frozen=True, kw_only=True)
class World:
    """Where the jobs are, and kubeconfigs of those who ask."""

    apiserver: ApiServer
    admin: Path
    nobody: Path
    """A service account without rights."""
    unreachable: Path
    """A server that does not answer."""

    def kubeconfig_of(self, situation: str) -> Path:
        return {"no cluster": self.unreachable, "no rights": self.nobody}.get(situation, self.admin)


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": EARLIER,
        "observedGeneration": 1,
    }


LIVE: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Running",
    "attempt": 1,
    "runId": "11111111-aaaa",
    "startTime": EARLIER,
    "trainer": {"job": "live-1", "ready": 1, "desired": 1, "summary": "1/1"},
    "samplers": {"desired": 2, "ready": 2, "serving": 2, "summary": "2/2"},
    "images": {"sampler": "s:1", "engine": "e:1", "pullPolicy": "Never"},
    "resources": {"gpus": 3, "cpu": "12", "memory": "96Gi"},
    "progress": {
        "step": 12,
        "steps": 60,
        "reward": 0.4375,
        "accuracy": 0.5,
        "phase": "waiting for rollouts",
        "backlog": 7,
        "tokensPerSecond": 12345.6,
        "trainerWaitShare": 0.25,
        "staleness": 1,
        "secondsLeft": 5400,
        "lastProgressTime": LATER,
    },
    "weights": {"version": 12, "minServingVersion": 11, "lag": 1, "uri": "s3://rl-data/p/12"},
    "attempts": [{"attempt": 1, "result": "Active", "replicas": 1, "startTime": EARLIER}],
    "datasets": [
        {"name": "train", "split": "train", "records": 7000, "skipped": 2},
        {"name": "test", "split": "validation", "records": 500, "accuracy": 0.5},
    ],
    "conditions": [
        condition("Ready", "True", "Running", "All pods are ready."),
        condition("Progressing", "True", "Running"),
    ],
}
STALLED: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Stalled",
    "conditions": [
        condition(
            "Stalled",
            "True",
            "ModelNotFound",
            "spec.model.uri = 's3://rl-data/models/arithmetic': there is no config.json. "
            f"Upload the model or change the URI. {HOSTILE}",
        ),
        condition("Ready", "False", "ModelNotFound", "The model was not found."),
    ],
}
FINISHED: dict[str, Any] = {
    **LIVE,
    "phase": "Succeeded",
    "runId": "33333333-cccc",
    "completionTime": LATER,
    "finalModel": "s3://rl-data/runs/33333333-cccc/final",
    "trainer": {"job": "finished-1", "summary": "0/0"},
    "samplers": {"desired": 0, "ready": 0, "summary": "0/0"},
    "progress": {"step": 60, "steps": 60, "reward": 0.9, "accuracy": 0.875},
    "weights": {"version": 60, "uri": "s3://rl-data/p/60"},
    "attempts": [
        {
            "attempt": 1,
            "result": "Succeeded",
            "reason": "Succeeded",
            "replicas": 1,
            "startTime": EARLIER,
            "endTime": LATER,
        }
    ],
    "conditions": [
        condition("Complete", "True", "Succeeded", "The run is complete."),
        condition("Ready", "False", "Succeeded", "The run is complete."),
    ],
}
POOL: dict[str, Any] = {
    "observedGeneration": 1,
    "replicas": 2,
    "ready": 2,
    "serving": 2,
    "updated": 2,
    "targetVersion": 12,
    "version": 11,
    "lag": 1,
    "conditions": [condition("Ready", "True", "Serving")],
}


def pod(name: str, job: str, container: str, **variables: str) -> dict[str, Any]:
    """A pod of a job, as far as the console reads it."""
    environment = {"RL_JOB": job, **variables}
    written = [{"name": key, "value": value} for key, value in environment.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": container, "image": "x:1", "env": written}]},
    }


PODS = (
    pod("live-1-worker-0", "live", "pytorch", RL_ATTEMPT="1"),
    pod("live-main-x-1", "live", "engine", RL_POOL="live-main", RL_CHAT_PORT="8083"),
)


def make(apiserver: ApiServer, folder: Path) -> World:
    """Write the jobs with their statuses, and the kubeconfigs."""
    apiserver.kubectl("create", "namespace", NAMESPACE)
    for name, status in (("live", LIVE), ("stalled", STALLED), ("finished", FINISHED)):
        _write(apiserver, a_job(name, namespace=NAMESPACE), status)
    pool = a_job("live-main", namespace=NAMESPACE) | {
        "kind": "SamplerPool",
        "spec": {"job": "live", "replicas": 2},
    }
    _write(apiserver, pool, POOL)
    apiserver.kubectl(
        "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": PODS})
    )
    for each in PODS:
        name, container = each["metadata"]["name"], each["spec"]["containers"][0]["name"]
        state = {"running": {"startedAt": EARLIER}}
        running = {"name": container, "ready": True, "restartCount": 0, "image": "x:1"}
        running |= {"imageID": "", "state": state}
        ready = {"type": "Ready", "status": "True"}
        status = {"phase": "Running", "containerStatuses": [running], "conditions": [ready]}
        put_status(apiserver, "pod", name, status)
    apiserver.kubectl("-n", NAMESPACE, "create", "serviceaccount", "nobody")
    command = ("-n", NAMESPACE, "create", "token", "nobody", "--duration=24h")
    token = apiserver.kubectl(*command).stdout.strip()
    written = {
        "admin": kubeconfig(apiserver, apiserver.token),
        "nobody": kubeconfig(apiserver, token),
        "unreachable": kubeconfig(apiserver, apiserver.token),
    }
    written["unreachable"]["clusters"][0]["cluster"] = {"server": DEAD_SERVER}
    paths = {}
    for name, config in written.items():
        config["contexts"][0]["context"]["namespace"] = NAMESPACE
        paths[name] = folder / name
        paths[name].write_text(json.dumps(config))
    return World(apiserver=apiserver, **paths)


def _write(apiserver: ApiServer, manifest: dict[str, Any], status: dict[str, Any]) -> None:
    assert apply(apiserver, manifest) == ""
    put_status(apiserver, manifest["kind"].lower(), manifest["metadata"]["name"], status)


def put_status(apiserver: ApiServer, kind: str, name: str, status: dict[str, Any]) -> None:
    """Replace the status of an object, as its operator would."""
    apiserver.set_status(kind, NAMESPACE, name, status)
