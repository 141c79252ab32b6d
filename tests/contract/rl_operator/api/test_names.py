"""A name that a manifest gives is one step of a URL's path, and never more of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from tests.api_front import fronting
from tests.apiserver import ApiServer
from tests.contract.rl_operator.world import World


@pytest.fixture
def proxied(apiserver: ApiServer, api: client.ApiClient) -> Iterator[Cluster]:
    """A client whose connections, as those through a proxy, take a path's dots for steps up."""
    with fronting(apiserver) as front:
        configuration = client.Configuration(host=front.url)
        configuration.api_key = api.configuration.api_key
        configuration.api_key_prefix = api.configuration.api_key_prefix
        with client.ApiClient(configuration) as through:
            yield Cluster(through, may_write=lambda: None, count=lambda verb, kind: None)


@pytest.mark.parametrize(
    "name", ["../../{}/secrets/rl-operator-stores", "..", ".", "a/b", "a?b", "a%2Fb", "a b", "ä"]
)
def test_no_secret_of_another_namespace_is_read(world: World, proxied: Cluster, name: str) -> None:
    world.make_secret()
    own = proxied.get(kinds.SECRET, world.namespace, "rl-operator-stores")
    assert own is not None
    assert proxied.get(kinds.SECRET, "default", name.format(world.namespace)) is None


def test_a_job_that_names_one_is_told_that_there_is_none(world: World) -> None:
    job = world.make_job(storage={"secretName": "../../kube-system/secrets/stores"})
    world.start_operator().jobs.reconcile(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "StoresSecretMissing"
    assert "spec.storage.secretName" in stalled["message"]
