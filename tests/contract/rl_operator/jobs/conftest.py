"""An API server and a namespace for jobs in queues."""

from __future__ import annotations

import json

import pytest

from tests.contract.rl_operator.world import World
from tests.kube import kueue
from tests.kube.apiserver import ApiServer


@pytest.fixture(scope="session")
def with_kueue(with_trainer_kind: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> ApiServer:
    """Kueue's schemas and two flavors of nodes."""
    path = tmp_path_factory.mktemp("kueue") / "crds.json"
    items = {"apiVersion": "v1", "kind": "List", "items": kueue.definitions()}
    path.write_text(json.dumps(items))
    with_trainer_kind.install(path)
    for name in ("spot", "owned"):
        with_trainer_kind.kubectl("apply", "-f", "-", stdin=json.dumps(kueue.flavor(name)))
    return with_trainer_kind


@pytest.fixture
def queue(with_kueue: ApiServer, world: World) -> World:
    world.make_secret()
    world.upload_inputs()
    return world
