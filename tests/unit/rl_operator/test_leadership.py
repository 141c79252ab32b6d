"""When a Lease may be taken."""

from __future__ import annotations

import asyncio
import threading
import time
from copy import deepcopy

import pytest
from kubernetes import client

from rl_operator.api_errors import ApiConflictError
from rl_operator.api_requests import Manifest
from rl_operator.cluster import Cluster
from rl_operator.kinds import Kind
from rl_operator.leadership import Leadership, Sighting, may_take

CASES = {
    "ours": ("me", 0.0, True),
    "given up": ("", 0.0, True),
    "held": ("other", 14.9, False),
    "not renewed": ("other", 15.0, True),
}


@pytest.mark.parametrize(("holder", "unchanged", "free"), CASES.values(), ids=CASES.keys())
def test_may_take(holder: str, unchanged: float, free: bool) -> None:
    sighting = Sighting(holder=holder, version="1", seen_at=100.0)
    assert may_take(sighting, identity="me", now=100.0 + unchanged) is free


class Slow(Cluster):
    """An API server of one Lease: a renewal is under way until it is read once more."""

    def __init__(self) -> None:
        api = client.ApiClient(client.Configuration())
        super().__init__(api, may_write=lambda: None, count=lambda verb, kind: None)
        self.lease: Manifest = {
            "metadata": {"name": "rl-operator", "resourceVersion": "1"},
            "spec": {"holderIdentity": ""},
        }
        self.renewing, self.read, self.renewed = (threading.Event() for _ in range(3))

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        if self.renewing.is_set():
            self.read.set()
        return deepcopy(self.lease)

    def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        if not self.renewing.is_set():
            self.renewing.set()
            self.read.wait(0.2)
            self._store(manifest)
            self.renewed.set()
        else:
            self.renewed.wait()
            self._store(manifest)
        return manifest

    def _store(self, manifest: Manifest) -> None:
        if manifest["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiConflictError(doing="PUT", status=409, message="changed")
        self.lease = deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] += "1"


async def test_what_is_under_way_leaves_no_lease_held() -> None:
    cluster = Slow()
    leadership = Leadership(cluster, namespace="n", identity="me", clock=time.monotonic)
    renewing = asyncio.create_task(leadership.run())
    await asyncio.to_thread(cluster.renewing.wait)
    renewing.cancel()
    await asyncio.to_thread(leadership.release)
    assert cluster.lease["spec"]["holderIdentity"] == ""
