"""Viewers with rights to one namespace each, and the operator's endpoint that answers them."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_operator.kube import kinds
from rl_operator.process.data_endpoint import PATH, TOKEN_HEADER, DataEndpoint
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_data import RunData
from tests.contract.rl_operator.reconciling import IMAGES
from tests.contract.rl_operator.world import WORLD_SYSTEM, World, a_namespace
from tests.kube.apiserver import ApiServer, kubeconfig
from tests.kube.published import publish_operator
from tests.samples.viewed_run import Shape, fill
from tests.waiting import HUNG_SECONDS, until

READING = ("get", "list")


def viewer_objects(
    namespace: str, name: str, verbs: Sequence[str] = READING
) -> list[dict[str, Any]]:
    """A service account with rights to the namespace's jobs and pools alone."""
    resources = ["rljobs", "samplerpools"]
    rules = [{"apiGroups": ["rl-operator.io"], "resources": resources, "verbs": [*verbs]}]
    metadata = {"name": name}
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata, **binding},
    ]


def a_viewer(
    apiserver: ApiServer, namespace: str, *, name: str = "viewer", verbs: Sequence[str] = READING
) -> str:
    """The token of such a service account."""
    items = viewer_objects(namespace, name, verbs)
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    apiserver.kubectl("-n", namespace, "apply", "-f", "-", stdin=listed)
    return apiserver.kubectl("-n", namespace, "create", "token", name).stdout.strip()


@dataclass
class Viewing:
    """The endpoint with the chart's rights, a run in each of two namespaces, and two viewers."""

    world: World
    endpoint: DataEndpoint
    other: str
    mine: str
    theirs: str
    run: str

    def ask(
        self, token: str, query: dict[str, Any], *, namespace: str = "", job: str = "job"
    ) -> tuple[int, dict[str, Any]]:
        """Ask as a viewer; a reader that starts is asked again."""
        text = json.dumps(query).replace("{run}", self.run)
        body = {"namespace": namespace or self.world.namespace, "job": job}

        def answered() -> tuple[int, dict[str, Any]] | None:
            answer = post(self.endpoint, token, {**body, "query": json.loads(text)})
            return None if answer[0] == 503 else answer

        return until(answered, what="a reader that has started")

    def publish(self) -> None:
        """Put the endpoint behind the chart's Service, for viewers who come by the API server."""
        publish_operator(self.world.apiserver, WORLD_SYSTEM, self.endpoint.port)


def post(
    endpoint: DataEndpoint, token: str, body: object, *, header: str = TOKEN_HEADER
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=HUNG_SECONDS)
    try:
        connection.request("POST", PATH, json.dumps(body), {header: token})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")
    finally:
        connection.close()


@contextlib.contextmanager
def answered(world: World) -> Iterator[Viewing]:
    """The endpoint while the context lasts."""
    world.make_secret()
    key = world.make_job()
    job = world.cluster.get(kinds.RLJOB, *key[1:])
    assert job is not None
    run = str(job["metadata"]["uid"])
    fill(world.stores, Shape(steps=3, name=run, namespace=world.namespace, screens=True))
    other = a_namespace(world.apiserver)
    readers = Readers(
        world.operators, IMAGES, system=WORLD_SYSTEM, clock=time.monotonic, pod_read_seconds=0.0
    )
    endpoint = DataEndpoint(0)
    endpoint.serve(RunData(world.operators, readers, clock=time.monotonic).answer)
    endpoint.start()
    yield Viewing(
        world=world,
        endpoint=endpoint,
        other=other,
        mine=a_viewer(world.apiserver, world.namespace),
        theirs=a_viewer(world.apiserver, other),
        run=run,
    )
    endpoint.close()


def kubeconfig_of(viewing: Viewing, token: str, folder: Path, *, namespace: str = "") -> Path:
    """A kubeconfig of a viewer, whose context has the namespace."""
    written = kubeconfig(viewing.world.apiserver, token)
    written["contexts"][0]["context"]["namespace"] = namespace or viewing.world.namespace
    path = folder / "kubeconfig"
    path.write_text(json.dumps(written))
    return path
