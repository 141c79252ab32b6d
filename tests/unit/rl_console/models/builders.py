"""A finished job, what is chosen of it, and pods of models."""

from __future__ import annotations

from typing import Any

from rl_console.actions.models.choice import Choice
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from tests.samples.manifests import a_job
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server

IMAGES = {"sampler": "s:1", "engine": "e:1", "pullPolicy": "Never", "pullSecrets": ["pull"]}
STATUS = {"runId": "run1", "images": IMAGES, "weights": {"version": 9}}
FINAL = "s3://b/runs/run1/final/1/"


def raw(**status: Any) -> dict[str, Any]:
    manifest = a_job("sums", namespace="lab")
    manifest["metadata"] |= {"uid": "u1", "generation": 1}
    return {**manifest, "status": {**STATUS, **status}}


def choice(version: int | None = None, **status: Any) -> Choice:
    cluster = Cluster(Api(Server(Answer(200, raw(**status))).library))
    return Choice.of(cluster, "lab", "sums", version)


def pod(phase: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": "sums-x", "creationTimestamp": "2026-11-26T00:00:00Z"}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


def ended(message: str) -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"terminated": {"message": message}}}]}


UNSCHEDULED = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes have a GPU"}]
}
