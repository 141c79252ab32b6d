"""Downloads policies from other samplers of the pool; falls back to the bucket on any failure."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import urllib3

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores.objects import OBJECT_BYTES
from rl_contracts.turns import folder_name
from rl_sampler.engine.weights import MANIFEST_FILE
from rl_sampler.policy.fetch import Source
from rl_sampler.policy.relay.peers import Peer, Registry, for_joiner, parents

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
LEVELS = 2
"""So many levels above are asked, each after its share of the wait."""
CHUNK_BYTES = 1 << 20
MISSING, PAST = 404, 410


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTimeouts:
    """How long to wait for a peer, in seconds; after that the bucket is used."""

    wait: float = 20.0
    """Until a peer has the policy."""
    connect: float = 1.0
    silent: float = 5.0
    """Without a byte."""
    range: float = 5.0
    """For a range, in addition to its size divided by ``min_bytes_per_second``."""
    min_bytes_per_second: float = 4 << 20


class PeerError(RLError):
    """A peer did not send a requested file."""


@dataclass(slots=True)
class Traffic:
    """Counts what came from peers."""

    peer_bytes: int = 0
    fallbacks: int = 0
    """Number of requests that fell back from a peer to the bucket."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count_bytes(self, size_bytes: int) -> None:
        """Count bytes from a peer."""
        with self.lock:
            self.peer_bytes += size_bytes

    def count_fallback(self) -> None:
        """Count a fallback to the bucket."""
        with self.lock:
            self.fallbacks += 1


class Relay:
    """Finds the peer to download a policy from."""

    def __init__(
        self,
        *,
        own: str,
        token: str,
        key: str,
        registry: Registry,
        timeouts: PeerTimeouts = PeerTimeouts(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a relay; nothing is sent yet.

        Args:
            own: this sampler's id.
            token: authorises requests to peers.
            key: this sampler's place in the tree.
            registry: of the samplers of the pool that relay.
            timeouts: how long peers are waited for.
            clock: gives monotonic seconds.
        """
        self._own, self._key, self._registry = own, key, registry
        self._timeouts, self._clock = timeouts, clock
        self.traffic = Traffic()
        self._http = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=timeouts.connect, read=timeouts.silent),
            retries=False,
            maxsize=8,
            headers={"Authorization": f"Bearer {token}"},
        )

    def source(
        self, bucket: Source, pointer: PolicyPointer, *, cancelled: threading.Event
    ) -> Source:
        """The source for a policy: a peer that has it, or else the bucket.

        Waits for a peer at most ``timeouts.wait`` seconds.
        """
        try:
            peer = self._find(folder_name(pointer.prefix), cancelled=cancelled)
        except (AccessDeniedError, CommandRefusedError, StoreUnavailableError) as error:
            logger.warning("cannot read the list of peers, using the bucket: %s", error)
            return bucket
        if peer is None:
            return bucket
        logger.info("downloading version %d from %s", pointer.version, peer.sampler)
        return RelayedSource(
            bucket,
            peer,
            http=self._http,
            traffic=self.traffic,
            timeouts=self._timeouts,
            clock=self._clock,
        )

    def _find(self, folder: str, *, cancelled: threading.Event) -> Peer | None:
        """The first peer that has a policy, of the level above, then of the next one."""
        wait = self._registry.has(self._own)
        above = self._above() if wait else iter([for_joiner(self._own, self._registry)])
        started, asked, level = self._clock(), list[Peer](), 0
        while True:
            if not asked or self._clock() - started >= level * self._timeouts.wait / LEVELS:
                asked += next(above, [])
                level += 1
            if not asked:
                break
            for peer in list(asked):
                status = self._ask(peer, folder)
                if status == 200:
                    return peer
                if status != MISSING:
                    asked.remove(peer)
            over = self._clock() - started >= self._timeouts.wait
            if not wait or over or cancelled.wait(POLL_SECONDS):
                break
        return None

    def _above(self) -> Iterator[list[Peer]]:
        for level in range(1, LEVELS + 1):
            yield parents(self._key, self._registry, level=level)

    def _ask(self, peer: Peer, folder: str) -> int:
        try:
            url = f"{peer.url}/policies/{folder}/{MANIFEST_FILE}"
            return int(self._http.request("HEAD", url).status)
        except urllib3.exceptions.HTTPError as error:
            logger.debug("%s does not answer: %s", peer.sampler, error)
            return 0


class RelayedSource:
    """Reads policies from a peer, and from the bucket where the peer fails."""

    def __init__(
        self,
        bucket: Source,
        peer: Peer,
        *,
        http: urllib3.PoolManager,
        traffic: Traffic,
        timeouts: PeerTimeouts,
        clock: Callable[[], float],
    ) -> None:
        self._timeouts = timeouts
        self._bucket, self._peer, self._http = bucket, peer, http
        self._traffic, self._clock = traffic, clock
        self._failed = threading.Event()

    def get(self, key: str) -> bytes:
        """As ``Source.get``."""
        content = bytearray()
        try:
            self._receive(key, None, content.extend)
        except PeerError as error:
            self._fall_back(error)
            return self._bucket.get(key)
        return bytes(content)

    def read_range(
        self, key: str, *, offset: int, size_bytes: int, consume: Callable[[bytes], None]
    ) -> None:
        """As ``Source.read_range``; the bucket sends only what the peer did not send."""
        received = 0

        def take(chunk: bytes) -> None:
            nonlocal received
            received += len(chunk)
            consume(chunk)

        try:
            self._receive(key, (offset, offset + size_bytes), take)
        except PeerError as error:
            self._fall_back(error)
            self._bucket.read_range(
                key, offset=offset + received, size_bytes=size_bytes - received, consume=consume
            )

    def _fall_back(self, error: PeerError) -> None:
        if not self._failed.is_set():
            logger.warning("falling back from %s to the bucket: %s", self._peer.sampler, error)
        self._traffic.count_fallback()

    def _receive(
        self, key: str, wanted: tuple[int, int] | None, consume: Callable[[bytes], None]
    ) -> None:
        if self._failed.is_set():
            raise PeerError("an earlier request to this peer failed")
        prefix, _, name = key.rpartition("/")
        url = f"{self._peer.url}/policies/{folder_name(prefix)}/{name}"
        size = wanted[1] - wanted[0] if wanted else 0
        deadline = self._clock() + self._timeouts.range
        deadline += size / self._timeouts.min_bytes_per_second
        headers = dict(self._http.headers)
        if wanted:
            headers["Range"] = f"bytes={wanted[0]}-{wanted[1] - 1}"
        try:
            response = self._http.request("GET", url, headers=headers, preload_content=False)
            try:
                self._take(response, size, consume, deadline=deadline, whole=wanted is None)
            finally:
                response.close()
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            self._failed.set()
            raise PeerError(f"{type(error).__name__}: {error}"[:200]) from error

    def _take(
        self,
        response: urllib3.BaseHTTPResponse,
        size: int,
        consume: Callable[[bytes], None],
        *,
        deadline: float,
        whole: bool,
    ) -> None:
        if response.status in {MISSING, PAST}:  # it lacks the file, for example of a base
            raise PeerError(f"the peer does not have {response.url}")
        if response.status != (200 if whole else 206):
            raise urllib3.exceptions.HTTPError(f"answered {response.status}")
        left = int(response.headers.get("Content-Length", ""))
        if whole and left > OBJECT_BYTES:
            raise urllib3.exceptions.HTTPError(f"sends {left} bytes, more than {OBJECT_BYTES}")
        if not whole and left != size:
            raise urllib3.exceptions.HTTPError(f"sends {left} bytes of {size}")
        while left:
            # Read whatever has arrived, however little: the deadline must also end a trickle.
            chunk = response.read1(min(CHUNK_BYTES, left), decode_content=False)
            if not chunk:
                raise urllib3.exceptions.IncompleteRead(size - left, left)
            left -= len(chunk)
            self._traffic.count_bytes(len(chunk))
            consume(chunk)
            if left and self._clock() > deadline:
                raise urllib3.exceptions.TimeoutError("the peer is too slow")
