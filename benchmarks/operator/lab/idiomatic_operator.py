"""A plain operator of RLJobs as kopf's own documentation has them, for comparison.

One handler for each phase and a timer that reads the pods; kopf writes finalizers, progress and
statuses as it does by default. It makes the same objects, out of the same recording.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kopf
from kubernetes import client, config

from benchmarks.operator.lab.floor import RECORDED, Recipe
from benchmarks.operator.lab.jobs import SAMPLERS

RECIPE = "RL_RECIPE"
"""Environment variable: the file of the recording."""
GROUP = ("rl-operator.io", "v1alpha1")
LOOK_SECONDS = 5.0


class Maker:
    """Makes what was recorded, under another name."""

    def __init__(self) -> None:
        config.load_kube_config()
        self._api = client.ApiClient()
        self._recipe = Recipe.load(Path(os.environ[RECIPE]))

    def make(self, what: tuple[str, str], body: Any, **uids: str) -> None:
        """Create an object if it does not exist."""
        namespace, name = (
            body["metadata"]["namespace"],
            body["metadata"]["name"].removesuffix("-main"),
        )
        text = what[1].replace(RECORDED[0], namespace).replace(RECORDED[1], name)
        for recorded, actual in uids.items():
            text = text.replace(getattr(self._recipe, recorded), actual)
        path = what[0].format(f"namespaces/{namespace}")
        try:
            self._api.call_api(
                path,
                "POST",
                body=json.loads(text),
                auth_settings=["BearerToken"],
                header_params={"Content-Type": "application/json"},
                _preload_content=False,
            )
        except client.ApiException as error:
            if error.status != 409:
                raise

    @property
    def recipe(self) -> Recipe:
        """What is made."""
        return self._recipe


def register(maker: Maker) -> None:
    """All handlers."""
    core = client.CoreV1Api()
    recipe = maker.recipe

    def created(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        for what in recipe.before:
            if "configmaps" in what[0] or "networkpolicies" in what[0] or "samplerpools" in what[0]:
                maker.make(what, body, job_uid=body["metadata"]["uid"])
        patch.status["phase"] = "Starting"

    def pool_created(body: kopf.Body, **_: Any) -> None:
        run = body["metadata"]["labels"]["rl-operator.io/run"]
        for what in recipe.before:
            if "deployments" in what[0] or "poddisruptionbudgets" in what[0]:
                maker.make(what, body, job_uid=run, pool_uid=body["metadata"]["uid"])

    def poll(body: kopf.Body, status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
        meta = body["metadata"]
        labels = f"rl-operator.io/job={meta['name']}"
        pods = core.list_namespaced_pod(meta["namespace"], label_selector=labels).items
        ready = sum(
            condition.type == "Ready" and condition.status == "True"
            for pod in pods
            for condition in pod.status.conditions or []
        )
        if status.get("phase") == "Starting" and ready >= SAMPLERS:
            maker.make(recipe.trainer, body, job_uid=meta["uid"])
            patch.status["phase"] = "Recovering"
        elif status.get("phase") == "Recovering" and ready > SAMPLERS:
            patch.status["phase"] = "Running"
            patch.status["conditions"] = [_ready(meta["generation"])]

    kopf.on.create(*GROUP, "rljobs")(created)
    kopf.on.create(*GROUP, "samplerpools")(pool_created)
    kopf.timer(*GROUP, "rljobs", interval=LOOK_SECONDS, initial_delay=LOOK_SECONDS)(poll)


def _ready(generation: int) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


class _Endpoint(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer that the process is there."""
        self.send_response(200)
        self.end_headers()


def main() -> None:
    """Run until stopped."""
    port = int(sys.argv[sys.argv.index("--listen-port") + 1])
    endpoint = HTTPServer(("127.0.0.1", port), _Endpoint)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    register(Maker())
    kopf.configure(verbose=False)
    kopf.run(clusterwide=True, standalone=True)


if __name__ == "__main__":
    main()
