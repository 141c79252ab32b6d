"""Kinds of MongoDB deployments by the fields of ``hello``, and which of them are warned about."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.stores.clients.deployment import Deployment, kind_of, warning

MEMBER = {"setName": "rs0", "isWritablePrimary": True, "me": "a:1"}
THREE = ["a:1", "b:1", "c:1"]
DEPLOYMENTS: dict[str, tuple[dict[str, Any], dict[str, Any], Deployment]] = {
    "a replica set": ({**MEMBER, "hosts": THREE}, {}, Deployment.REPLICA_SET),
    "two members and an arbiter": (
        {**MEMBER, "hosts": ["a:1", "b:1"], "arbiters": ["c:1"]},
        {},
        Deployment.REPLICA_SET,
    ),
    "a member of no priority": (
        {**MEMBER, "hosts": ["a:1"], "passives": ["b:1"]},
        {},
        Deployment.REPLICA_SET,
    ),
    "one member": ({**MEMBER, "hosts": ["a:1"]}, {}, Deployment.ONE_MEMBER),
    "one member and arbiters": (
        {**MEMBER, "hosts": ["a:1"], "arbiters": ["b:1", "c:1"]},
        {},
        Deployment.ONE_MEMBER,
    ),
    "a router": ({"msg": "isdbgrid", "isWritablePrimary": True}, {}, Deployment.SHARDED),
    "a standalone server": ({"isWritablePrimary": True}, {"version": "7"}, Deployment.STANDALONE),
    "the embedded store": (
        {"isWritablePrimary": True},
        {"version": "7", "ferretdbVersion": "v1"},
        Deployment.EMBEDDED,
    ),
}


@pytest.mark.parametrize(("hello", "build", "wanted"), DEPLOYMENTS.values(), ids=DEPLOYMENTS.keys())
def test_deployments_are_told_apart_by_hello(
    hello: dict[str, Any], build: dict[str, Any], wanted: Deployment
) -> None:
    assert kind_of(hello, build, {}) is wanted
    on_disk = {"storageEngine": {"name": "wiredTiger", "persistent": True}}
    assert kind_of(hello, build, on_disk) is wanted
    in_memory = {"storageEngine": {"name": "inMemory", "persistent": False}}
    assert kind_of(hello, build, in_memory) is Deployment.IN_MEMORY


def test_a_deployment_that_can_lose_its_runs_is_warned_about() -> None:
    good = {deployment for deployment in Deployment if warning(deployment) is None}
    assert good == {Deployment.REPLICA_SET, Deployment.SHARDED}
    standalone = warning(Deployment.STANDALONE)
    assert standalone is not None
    assert standalone.reason == "Standalone"
    assert standalone.message == (
        "The state store is a standalone MongoDB server: if its disk is lost, so are its runs, and "
        "each restart of it is an outage. Use a replica set of three members."
    )
