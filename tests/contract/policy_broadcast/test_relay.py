"""Peers spare the bucket, and can do no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from aiohttp import web

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.weights import WeightsFolder
from rl_sampler.policy import fetch
from rl_sampler.policy.relay.client import PeerTimeouts
from rl_sampler.policy.relay.peers import Peer, StoredRegistry
from rl_sampler.policy.relay.server import RelayServer
from tests.contract.policy_broadcast.relaying import TOKEN, Pool, Servers, key_of, running_pool
from tests.contract.policy_broadcast.world import Line, content, moved, strange
from tests.samples.documents import RUN, a_sampler

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
def line(stores: Stores) -> Line:
    return Line(stores.objects)


def test_the_bucket_sends_each_version_once_to_a_whole_pool(
    line: Line, stores: Stores, tmp_path: Path
) -> None:
    tensors = strange()
    with running_pool(stores.objects, tmp_path, tensors, count=9) as pool:
        sent: list[int] = []
        for seed in range(3):
            pointer = line.publish(tensors)
            for staged in pool.stage(pointer):
                assert content(staged) == line.states[line.version]
            sent.append(pool.from_bucket - sum(sent))
            tensors = moved(tensors, seed=seed)
        deltas = [line.manifest(version).delta for version in (2, 3)]
        wanted = [line.manifest(1).full_bytes, *(delta.size_bytes for delta in deltas if delta)]
        assert sent == wanted
        assert sum(relay.traffic.fallbacks for relay in pool.relays) == 0


def test_a_late_joiner_takes_everything_from_its_peers(
    line: Line, stores: Stores, tmp_path: Path
) -> None:
    tensors = strange()
    with running_pool(stores.objects, tmp_path, tensors, count=2) as pool:
        for seed in range(3):
            pool.stage(line.publish(tensors))
            tensors = moved(tensors, seed=seed)
        joiner = pool.join(registered=False)
        assert content(joiner.stage(line.pointers[3])) == line.states[3]
        assert joiner.received == []


def test_a_version_that_the_parent_skipped_is_not_awaited(
    line: Line, stores: Stores, tmp_path: Path
) -> None:
    tensors = strange()
    with running_pool(stores.objects, tmp_path, tensors, count=2) as pool:
        line.publish(tensors)
        line.publish(moved(tensors, seed=1))
        parent, child = pool.members
        parent.stage(line.pointers[2])
        assert content(child.stage(line.pointers[1])) == line.states[1]
        assert sum(child.received) == line.manifest(1).full_bytes


def test_waiting_for_a_slow_parent_is_bounded(line: Line, stores: Stores, tmp_path: Path) -> None:
    hasty = PeerTimeouts(wait=0.3)
    with running_pool(stores.objects, tmp_path, strange(), count=2, timeouts=hasty) as pool:
        pointer = line.publish(strange())
        assert content(pool.members[1].stage(pointer)) == line.states[1]


def serving(body: bytes, request: web.Request) -> web.Response:
    """A range of what lies in the bucket, as a peer would send it."""
    wanted = request.http_range
    part = body[wanted.start or 0 : wanted.stop]
    return web.Response(body=part, status=206 if request.headers.get("Range") else 200)


def hostile(line: Line, name: str) -> web.Application:
    """A server that says it has the version and misbehaves over its files."""
    prefix = line.pointers[1].prefix
    stuck = asyncio.Event

    async def flipped(request: web.Request) -> web.StreamResponse:
        body = bytearray(line.objects.get(prefix + request.match_info["file"]))
        body[len(body) // 2] ^= 1
        return serving(bytes(body), request)

    async def short(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=206, headers={"Content-Length": "1000000"})
        return await cut(request, response)

    async def cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        await response.prepare(request)
        body = line.objects.get(prefix + request.match_info["file"])
        await response.write(body[:100])
        assert request.transport is not None
        request.transport.close()
        return response

    async def torn(request: web.Request) -> web.StreamResponse:
        span = request.http_range
        size = (span.stop or 0) - (span.start or 0)
        return await cut(
            request, web.StreamResponse(status=206, headers={"Content-Length": str(size)})
        )

    async def stalling(request: web.Request) -> web.StreamResponse:
        await stuck().wait()
        raise web.HTTPGone

    async def broken(request: web.Request) -> web.StreamResponse:
        raise web.HTTPInternalServerError

    async def whole(request: web.Request) -> web.StreamResponse:
        return web.Response(body=line.objects.get(prefix + request.match_info["file"]))

    answers: dict[str, Answer] = {
        "flips a bit": flipped,
        "declares another length": short,
        "hangs up": torn,
        "stalls": stalling,
        "fails": broken,
        "ignores ranges": whole,
    }

    async def file(request: web.Request) -> web.StreamResponse:
        if request.match_info["file"] == "manifest.json" and name != "lies about the manifest":
            return serving(line.objects.get(prefix + "manifest.json"), request)
        return await answers.get(name, flipped)(request)

    application = web.Application()
    application.router.add_get("/policies/{policy}/{file}", file)
    return application


@pytest.mark.parametrize(
    "name",
    [
        "flips a bit",
        "declares another length",
        "hangs up",
        "stalls",
        "fails",
        "ignores ranges",
        "lies about the manifest",
    ],
)
def test_a_corrupt_peer_costs_one_download(
    line: Line, stores: Stores, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PART_BYTES", 700)
    pointer = line.publish(strange())
    with Servers() as servers:
        timeouts = PeerTimeouts(silent=0.5, range=0.5)
        pool = Pool(servers, stores.objects, tmp_path, strange(), timeouts)
        pool.registry.append(Peer("sampler-", servers.serve(hostile(line, name)), "0" * 16))
        joiner = pool.join()
        assert content(joiner.stage(pointer)) == line.states[1]
        assert joiner.names == [pool.members[0].weights.of_policy(pointer).name]
        assert joiner.received, "the bucket had to help"


def test_a_dead_peer_is_skipped(line: Line, stores: Stores, tmp_path: Path) -> None:
    pointer = line.publish(strange())
    with running_pool(stores.objects, tmp_path, strange(), count=6) as pool:
        for peer in pool.registry[:2]:
            pool.servers.close(peer.url)
        last = pool.members[-1]  # its ancestors are 1 and 0, which are gone
        assert content(last.stage(pointer)) == line.states[1]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("00000001-1-ab/manifest.json", 200),
        ("00000001-1-ab/model.safetensors", 200),
        ("00000002-1-ab/model.safetensors", 404),  # it may yet come
        ("00000000-1-ab/model.safetensors", 410),  # it will not
        ("00000001-1-ab/pointer.json", 410),
        ("00000001-1-ab/.route", 410),
        ("00000001-1-ab/secret.safetensors", 410),  # a link
        ("00000001-1-ab.partial/model.safetensors", 410),
        ("..%2Fbase/config.json", 410),
        ("00000001-1-ab/..%2F..%2F..%2Fbase%2Fmodel.safetensors", 410),
    ],
)
def test_only_files_of_verified_policies_are_handed_out(
    line: Line, stores: Stores, tmp_path: Path, path: str, status: int
) -> None:
    with running_pool(stores.objects, tmp_path, strange(), count=1) as pool:
        (staged,) = pool.stage(line.publish(strange()))
        (tmp_path / "secret").write_text("x")
        (staged.folder / "secret.safetensors").symlink_to(tmp_path / "secret")
        unfinished = staged.folder.with_name(staged.folder.name + ".partial")
        unfinished.mkdir()
        (unfinished / "model.safetensors").write_text("x")
        with urllib3.PoolManager(retries=False) as http:
            url = f"{pool.registry[0].url}/policies/{path}"
            known = {"Authorization": f"Bearer {TOKEN}"}
            assert http.request("GET", url, headers=known).status == status
            for other in ({}, {"Authorization": "Bearer guess"}):
                assert http.request("GET", url, headers=other).status == 403
            assert http.request("PUT", url, headers=known).status in {404, 405}


def test_the_registry_names_the_pools_living_samplers_that_relay(
    stores: Stores, tmp_path: Path
) -> None:
    now = stores.mongo.now()

    def row(name: str, **changes: Any) -> Sampler:
        values: dict[str, Any] = {
            "id": name,
            "relay_url": f"http://{name}:8082",
            "heartbeat_at": now,
            "relay_key": "3" * 16,
        }
        return a_sampler(**values | changes)

    stores.samplers.put(
        [
            row("ready", relay_key="2" * 16),
            row("starting", relay_key="5" * 16, state=SamplerState.STARTING),
            row("other-pool", pool="other"),
            row("without", relay_url=""),
            row("draining", state=SamplerState.DRAINING),
            row("gone", state=SamplerState.GONE),
            row("silent", heartbeat_at=now - 3600),
            row("other-run", run="other"),
        ]
    )
    registry = StoredRegistry(stores=stores, run=RUN, pool=a_sampler().pool)
    ready = Peer("ready", "http://ready:8082", "2" * 16)
    starting = Peer("starting", "http://starting:8082", "5" * 16)
    assert registry.first() == ready
    assert registry.below("f" * 16, most=9) == [starting, ready]
    assert registry.below("f" * 16, most=1) == [starting]
    assert registry.below("4" * 16, most=9) == [ready]
    assert registry.below("1" * 16, most=9) == []
    assert (registry.has("silent"), registry.has("nobody")) == (True, False)


def test_a_busy_peer_sends_others_to_the_bucket(line: Line, stores: Stores, tmp_path: Path) -> None:
    pointer = line.publish(strange())
    with running_pool(stores.objects, tmp_path, strange(), count=1) as pool:
        pool.stage(pointer)
        busy = RelayServer(WeightsFolder(pool.members[0].weights.root), token=TOKEN, transfers=0)
        pool.registry[0] = Peer("sampler-000", pool.servers.serve(busy.application()), key_of(0))
        child = pool.join()
        assert content(child.stage(pointer)) == line.states[1]
        assert sum(child.received) == line.manifest(1).full_bytes
