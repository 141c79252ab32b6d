"""Pools of subscribers that relay: real HTTP servers on one event loop, a registry in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from torch import Tensor

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.stores.objects import Objects
from rl_sampler.engine.weights import Staged, WeightsFolder
from rl_sampler.policy.relay.client import PeerTimeouts, Relay
from rl_sampler.policy.relay.peers import Peer
from rl_sampler.policy.relay.server import RelayServer
from tests.contract.policy_broadcast.world import Subscriber

T = TypeVar("T")
TOKEN = "of-the-run"
STEADY = PeerTimeouts(wait=600, connect=60, silent=600, range=600)
"""For tests in which no peer fails: a slow machine is no failure."""


class Servers:
    """HTTP servers on an event loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._runners: dict[str, web.AppRunner] = {}

    def __enter__(self) -> Servers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for url in list(self._runners):
            self.close(url)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def serve(self, application: web.Application) -> str:
        """Start one; its URL."""
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        self._run(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._run(site.start())
        host, port = runner.addresses[0][:2]
        url = f"http://{host}:{port}"
        self._runners[url] = runner
        return url

    def close(self, url: str) -> None:
        """Stop one."""
        self._run(self._runners.pop(url).cleanup())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=600)


def key_of(number: int) -> str:
    """Key of the member with this number, from 0: so they make a tree in which each has four."""
    return f"{(number + 1) << 48:016x}"


@dataclass
class Pool:
    """Subscribers that know each other."""

    servers: Servers
    objects: Objects
    folder: Path
    tensors: Mapping[str, Tensor]
    timeouts: PeerTimeouts = STEADY
    registry: list[Peer] = field(default_factory=list)
    """In the order of their keys, which are evenly distributed."""
    members: list[Subscriber] = field(default_factory=list)
    relays: list[Relay] = field(default_factory=list)

    def join(self, *, registered: bool = True) -> Subscriber:
        """One more; not registered is how an init container is."""
        name = f"sampler-{len(self.members):03d}"
        key = key_of(len(self.members))
        relay = Relay(own=name, key=key, token=TOKEN, registry=self, timeouts=self.timeouts)
        home = self.folder / name
        made = Subscriber.make(home, self.objects, self.tensors, relay=relay)
        if registered:
            server = RelayServer(WeightsFolder(home), token=TOKEN)
            self.registry.append(Peer(name, self.servers.serve(server.application()), key))
        self.members.append(made)
        self.relays.append(relay)
        return made

    def below(self, key: str, *, most: int) -> list[Peer]:
        """See ``peers.Registry``."""
        return [peer for peer in self.registry if peer.key <= key][::-1][:most]

    def first(self) -> Peer | None:
        """See ``peers.Registry``."""
        return self.registry[0] if self.registry else None

    def has(self, sampler: str) -> bool:
        """See ``peers.Registry``."""
        return any(peer.sampler == sampler for peer in self.registry)

    def stage(self, pointer: PolicyPointer) -> list[Staged]:
        """Everyone stages a version at the same time and keeps what it has."""
        with ThreadPoolExecutor(len(self.members)) as threads:
            jobs = [
                threads.submit(
                    member.stage, pointer, keep=list(member.weights.policies.glob("0*-ab"))
                )
                for member in self.members
            ]
        return [job.result() for job in jobs]

    @property
    def from_bucket(self) -> int:
        """Bytes of files that the bucket has sent to all of them."""
        return sum(sum(member.received) for member in self.members)


@contextmanager
def running_pool(
    objects: Objects,
    folder: Path,
    tensors: Mapping[str, Tensor],
    *,
    count: int,
    timeouts: PeerTimeouts = STEADY,
) -> Iterator[Pool]:
    """A pool of so many."""
    with Servers() as servers:
        pool = Pool(servers, objects, folder, tensors, timeouts)
        for _ in range(count):
            pool.join()
        yield pool
