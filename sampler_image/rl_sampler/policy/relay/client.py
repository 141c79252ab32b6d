"""Takes policies from other samplers of the pool; on any error or slowness from the bucket."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import urllib3

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import AccessDeniedError, RLError, StoreUnavailableError
from rl_sampler.engine.weights import MANIFEST_FILE
from rl_sampler.policy.relay.pool import folder_of
from rl_sampler.policy.relay.tree import Peer, ancestors, for_joiner
from rl_sampler.policy.source import Source

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20
MISSING, PAST = 404, 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a peer is waited for, in seconds; after that the bucket is asked."""

    wait: float = 20.0
    """Until one has a policy."""
    connect: float = 1.0
    silent: float = 5.0
    """Without a byte."""
    range: float = 5.0
    """For a range to come, and as much more as ``least_bytes_per_second`` makes of its size."""
    least_bytes_per_second: float = 4 << 20


class PeerError(RLError):
    """A peer did not send what was asked for."""


@dataclass(slots=True)
class Traffic:
    """What came from where."""

    peer_bytes: int = 0
    fallbacks: int = 0
    """Times that the bucket took over from a peer."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def came(self, size_bytes: int) -> None:
        """Count bytes from a peer."""
        with self.lock:
            self.peer_bytes += size_bytes

    def fell_back(self) -> None:
        """Count one that failed."""
        with self.lock:
            self.fallbacks += 1


class Relay:
    """Finds the peer to take a policy from."""

    def __init__(
        self,
        *,
        own: str,
        token: str,
        pool: Callable[[], Sequence[Peer]],
        patience: Patience = Patience(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            own: this sampler's id.
            token: which the others want to see.
            pool: the living samplers of the pool that relay, this one among them once it is
                registered.
            patience: how long peers are waited for.
            clock: monotonic seconds.
        """
        self._own, self._pool = own, pool
        self._patience, self._clock = patience, clock
        self.traffic = Traffic()
        self._http = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=patience.connect, read=patience.silent),
            retries=False,
            maxsize=8,
            headers={"Authorization": f"Bearer {token}"},
        )

    def source(self, bucket: Source, pointer: PolicyPointer, *, ended: threading.Event) -> Source:
        """Where to take a policy from: a peer that has it and else the bucket.

        Waits for a peer at most ``patience.wait`` seconds.
        """
        try:
            pool = self._pool()
        except (AccessDeniedError, StoreUnavailableError) as error:
            logger.warning("nobody knows the peers, the bucket is asked: %s", error)
            return bucket
        known = any(one.sampler == self._own for one in pool)
        asked = ancestors(self._own, pool) if known else for_joiner(self._own, pool)
        peer = self._find(folder_of(pointer.prefix), asked, wait=known, ended=ended)
        if peer is None:
            return bucket
        logger.info("taking version %d from %s", pointer.version, peer.sampler)
        return RelayedSource(
            bucket,
            peer,
            http=self._http,
            traffic=self.traffic,
            patience=self._patience,
            clock=self._clock,
        )

    def _find(
        self, folder: str, asked: list[Peer], *, wait: bool, ended: threading.Event
    ) -> Peer | None:
        deadline = self._clock() + self._patience.wait
        while asked:
            for peer in list(asked):
                status = self._ask(peer, folder)
                if status == 200:
                    return peer
                if status != MISSING:
                    asked.remove(peer)
            if not wait or self._clock() >= deadline or ended.wait(POLL_SECONDS):
                break
        return None

    def _ask(self, peer: Peer, folder: str) -> int:
        try:
            url = f"{peer.url}/policies/{folder}/{MANIFEST_FILE}"
            return int(self._http.request("HEAD", url).status)
        except urllib3.exceptions.HTTPError as error:
            logger.debug("%s does not answer: %s", peer.sampler, error)
            return 0


class RelayedSource:
    """A peer's copy of policies, and the bucket for whatever does not come from there."""

    def __init__(
        self,
        bucket: Source,
        peer: Peer,
        *,
        http: urllib3.PoolManager,
        traffic: Traffic,
        patience: Patience,
        clock: Callable[[], float],
    ) -> None:
        self._patience = patience
        self._bucket, self._peer, self._http = bucket, peer, http
        self._traffic, self._clock = traffic, clock
        self._failed = threading.Event()

    def get(self, key: str) -> bytes:
        """A whole object; see ``Source``."""
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
        """A range of an object; see ``Source``. What a peer has sent is not asked for again."""
        come = 0

        def take(chunk: bytes) -> None:
            nonlocal come
            come += len(chunk)
            consume(chunk)

        try:
            self._receive(key, (offset, offset + size_bytes), take)
        except PeerError as error:
            self._fall_back(error)
            self._bucket.read_range(
                key, offset=offset + come, size_bytes=size_bytes - come, consume=consume
            )

    def _fall_back(self, error: PeerError) -> None:
        if not self._failed.is_set():
            logger.warning("the bucket takes over from %s: %s", self._peer.sampler, error)
        self._traffic.fell_back()

    def _receive(
        self, key: str, wanted: tuple[int, int] | None, consume: Callable[[bytes], None]
    ) -> None:
        if self._failed.is_set():
            raise PeerError("it failed before")
        prefix, _, name = key.rpartition("/")
        url = f"{self._peer.url}/policies/{folder_of(prefix)}/{name}"
        size = wanted[1] - wanted[0] if wanted else 0
        deadline = self._clock() + self._patience.range
        deadline += size / self._patience.least_bytes_per_second
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
        if response.status in {MISSING, PAST}:  # it has no such file: of a base, for example
            raise PeerError(f"it has no {response.url}")
        if response.status != (200 if whole else 206):
            raise urllib3.exceptions.HTTPError(f"answered {response.status}")
        left = int(response.headers.get("Content-Length", ""))
        if not whole and left != size:
            raise urllib3.exceptions.HTTPError(f"sends {left} bytes of {size}")
        while left:
            # What has come, be it little: a trickle must not hide from the deadline.
            chunk = response.read1(min(CHUNK_BYTES, left), decode_content=False)
            if not chunk:
                raise urllib3.exceptions.IncompleteRead(size - left, left)
            left -= len(chunk)
            self._traffic.came(len(chunk))
            consume(chunk)
            if left and self._clock() > deadline:
                raise urllib3.exceptions.TimeoutError("it is too slow")
