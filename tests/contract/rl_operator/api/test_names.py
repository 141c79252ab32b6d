"""A name that a manifest gives is one step of a URL's path, and never more of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from tests.contract.rl_operator.world import World
from tests.kube.api_front import fronting
from tests.kube.apiserver import ApiServer, apply
from tests.samples.manifests import a_job


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


def test_job_with_a_path_as_secret_name_is_refused(apiserver: ApiServer) -> None:
    job = a_job("named", storage={"secretName": "../../kube-system/secrets/stores"})
    assert "spec.storage.secretName" in apply(apiserver, job)
