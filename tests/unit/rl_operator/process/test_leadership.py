"""When a Lease may be taken, how it is released, and what a restored backup leads to."""

from __future__ import annotations

import asyncio
import threading
import time
from copy import deepcopy

import pytest
from kubernetes import client

from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.process import leadership as module
from rl_operator.process.leadership import (
    DataRestoredError,
    Leadership,
    LeaseState,
    NotLeaderError,
    may_take,
)

CASES = {
    "ours": ("me", 0.0, True),
    "given up": ("", 0.0, True),
    "held": ("other", 14.9, False),
    "not renewed": ("other", 15.0, True),
}


@pytest.mark.parametrize(("holder", "unchanged", "free"), CASES.values(), ids=CASES.keys())
def test_a_lease_may_be_taken_if_it_is_ours_free_or_unchanged_for_its_duration(
    holder: str, unchanged: float, free: bool
) -> None:
    state = LeaseState(holder=holder, version="1", seen_at=100.0)
    assert may_take(state, identity="me", now=100.0 + unchanged) is free


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

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
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


async def test_release_waits_for_a_renewal_that_is_under_way() -> None:
    cluster = Slow()
    leadership = Leadership(cluster, namespace="n", identity="me", clock=time.monotonic)
    renewing = asyncio.create_task(leadership.run())
    await asyncio.to_thread(cluster.renewing.wait)
    renewing.cancel()
    await asyncio.to_thread(leadership.release)
    assert cluster.lease["spec"]["holderIdentity"] == ""


class Restored(Slow):
    """An API server that is given an older copy of its data once the Lease is held."""

    def __init__(self, *, forgets: bool) -> None:
        super().__init__()
        self._forgets = forgets
        self.lease["metadata"]["resourceVersion"] = "7"

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return deepcopy(self.lease) if self.lease else None

    def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        stored = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "8"}}
        old = {**manifest["metadata"], "resourceVersion": "5"}
        self.lease = {} if self._forgets else {**manifest, "metadata": old}
        return stored

    def create(self, kind: Kind, manifest: Manifest, *, manager: str = "") -> Manifest:
        return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "6"}}


@pytest.mark.parametrize("forgets", [False, True], ids=["an older Lease", "no Lease"])
async def test_a_process_that_reads_an_older_lease_stops_writing_and_ends(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    leader = Leadership(
        Restored(forgets=forgets), namespace="n", identity="me", clock=time.monotonic
    )
    with pytest.raises(DataRestoredError, match="after version 8"):
        await leader.run()
    assert leader.gained.is_set()
    with pytest.raises(NotLeaderError):
        leader.check()
