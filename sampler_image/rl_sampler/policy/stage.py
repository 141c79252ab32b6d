"""Staging: a published policy is downloaded and verified while the engine goes on serving."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rl_contracts import adapters
from rl_contracts.disk import SPARE_BYTES, DiskFullError, free_bytes
from rl_contracts.documents.manifest import BasePolicy, Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError, ObjectMissingError, StoreUnavailableError
from rl_contracts.stores.objects import Objects
from rl_sampler.engine.weights import MANIFEST_FILE, POINTER_FILE, Staged, WeightsFolder
from rl_sampler.policy.base import companions
from rl_sampler.policy.build import build
from rl_sampler.policy.fetch import StagingEndedError
from rl_sampler.policy.relay.client import Relay
from rl_sampler.policy.route import Route, cheapest
from rl_sampler.policy.source import Source
from rl_sampler.policy.verify import Signature, check_folder, check_manifest

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
ROUTE_FILE = ".route"
TURN_SECONDS = 0.1


class Stager:
    """Puts verified policies under their own names in the weights folder. Blocking."""

    def __init__(
        self,
        objects: Objects,
        *,
        weights: WeightsFolder,
        signature: Signature,
        free: Callable[[Path], int] = free_bytes,
        relay: Relay | None = None,
    ) -> None:
        """Prepare.

        Args:
            objects: the bucket.
            weights: where policies lie.
            signature: what every policy must hold.
            free: bytes that can still be written into a folder.
            relay: whom to ask before the bucket; None for no one.
        """
        self._objects, self._relay = objects, relay
        self._weights = weights
        self._signature = signature
        self._free = free
        self._turn = threading.Lock()

    def stage(
        self, pointer: PolicyPointer, *, keep: Collection[Path], ended: threading.Event
    ) -> Staged:
        """Make a published policy loadable.

        What was downloaded stays when the bucket went away or nobody waited any more; the next
        attempt at the same policy goes on from there.

        Args:
            pointer: which one.
            keep: folders that must stay, the one most worth keeping first: what the engine holds,
                then the one before it, which gives way where the disk is short.
            ended: set by the caller when it does not want the result any more.

        Raises:
            IntegrityError: something is not what manifest, pointer or model say.
            ObjectMissingError: retention has removed it.
            DiskFullError: with the numbers.
            StagingEndedError: ``ended`` was set.
        """
        with self._one_at_a_time(pointer, ended):
            folder = self._weights.of_policy(pointer)
            if folder.is_dir():
                return self.restage(pointer)
            started = time.monotonic()
            source: Source = self._objects
            if self._relay is not None:
                source = self._relay.source(source, pointer, ended=ended)
            try:
                route = self._make(source, pointer, folder, keep=keep, ended=ended)
            except IntegrityError as error:
                if source is self._objects:
                    raise
                logger.warning(
                    "a peer's version %d is not what was published, downloading it: %s",
                    pointer.version,
                    error,
                )
                route = self._make(self._objects, pointer, folder, keep=keep, ended=ended)
        logger.info(
            "staged version %d in %.2f s: %d bytes downloaded, %d deltas applied",
            pointer.version,
            time.monotonic() - started,
            route.download_bytes,
            len(route.deltas),
        )
        return Staged(pointer=pointer, folder=folder)

    def _make(
        self,
        source: Source,
        pointer: PolicyPointer,
        folder: Path,
        *,
        keep: Collection[Path],
        ended: threading.Event,
    ) -> Route:
        """Make a verified folder of what a source has."""
        prefix = pointer.prefix.rstrip("/") + "/"
        stored = source.get(prefix + MANIFEST_FILE)
        manifest = Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)
        check_manifest(manifest, pointer=pointer, signature=self._signature)
        partial = folder.with_name(folder.name + PARTIAL)
        self.clear_partial(but=partial)
        self._make_room(manifest, partial, keep=list(keep))
        route = self._build(source, manifest, prefix, partial, ended=ended)
        self._complete(partial, stored=stored, pointer=pointer)
        partial.rename(folder)
        return route

    def restage(self, pointer: PolicyPointer) -> Staged:
        """Check a policy that was staged earlier, reading all of it; it is removed when bad.

        Raises:
            IntegrityError: it is not what it was.
        """
        folder = self._weights.of_policy(pointer)
        try:
            stored = (folder / MANIFEST_FILE).read_bytes()
            manifest = Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)
            check_manifest(manifest, pointer=pointer, signature=self._signature)
            check_folder(folder, manifest)
        except (OSError, IntegrityError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise IntegrityError(f"staged version {pointer.version} is damaged: {error}") from error
        return Staged(pointer=pointer, folder=folder)

    @contextlib.contextmanager
    def _one_at_a_time(self, pointer: PolicyPointer, ended: threading.Event) -> Iterator[None]:
        # An attempt that was given up may still hang in a request.
        while not self._turn.acquire(timeout=TURN_SECONDS):
            if ended.is_set():
                raise StagingEndedError(f"staging of version {pointer.version} was given up")
        try:
            yield
        finally:
            self._turn.release()

    def _build(
        self,
        source: Source,
        manifest: Manifest,
        prefix: str,
        partial: Path,
        *,
        ended: threading.Event,
    ) -> Route:
        """Build by the cheapest route; by one without local files when a local one went bad."""
        load = functools.partial(_load, source)
        route = cheapest(manifest, prefix=prefix, local=self._local, load=load)
        try:
            self._follow(source, route, manifest, partial, ended=ended)
        except (IntegrityError, ObjectMissingError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            if route.local is None:
                raise
            logger.warning(
                "version %d cannot be made of %s, downloading it: %s",
                manifest.version,
                route.local.name,
                error,
            )
            route = cheapest(manifest, prefix=prefix, local=lambda base: None, load=load)
            self._follow(source, route, manifest, partial, ended=ended)
        return route

    def _follow(
        self,
        source: Source,
        route: Route,
        manifest: Manifest,
        partial: Path,
        *,
        ended: threading.Event,
    ) -> None:
        needed = route.delta_bytes + manifest.tensor_bytes
        if self._free(self._weights.policies) + _used(partial) < needed + SPARE_BYTES:
            raise self._disk_full(needed)
        note = partial / ROUTE_FILE
        if partial.is_dir() and (not note.is_file() or note.read_text() != repr(route)):
            shutil.rmtree(partial)
        partial.mkdir(parents=True, exist_ok=True)
        note.write_text(repr(route))
        keep_delta = self._relay is not None
        started = time.monotonic()
        try:
            build(source, route, manifest, partial, ended=ended, keep_delta=keep_delta)
            built = time.monotonic()
            check_folder(partial, manifest, compared=not route.deltas and route.local is None)
        except (StoreUnavailableError, StagingEndedError):
            raise
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        note.unlink()
        logger.info(
            "version %d was made in %.2f s and verified in %.2f s",
            manifest.version,
            built - started,
            time.monotonic() - built,
        )

    def _local(self, base: BasePolicy) -> Path | None:
        folder = self._weights.policies / base.prefix.rstrip("/").rsplit("/", 1)[-1]
        manifest = folder / MANIFEST_FILE
        if not manifest.is_file():
            return None
        same = hashlib.sha256(manifest.read_bytes()).hexdigest() == base.manifest_sha256
        return folder if same else None

    def _complete(self, partial: Path, *, stored: bytes, pointer: PolicyPointer) -> None:
        if self._signature.adapter is not None:
            config = adapters.peft_config(self._signature.adapter)
            (partial / adapters.CONFIG_FILE).write_text(json.dumps(config))
        else:
            # The engine may start from this folder, so it needs what stands beside the weights.
            for path in companions(self._weights.base):
                if not (partial / path.name).exists():
                    os.link(path, partial / path.name)
        (partial / MANIFEST_FILE).write_bytes(stored)
        (partial / POINTER_FILE).write_text(pointer.model_dump_json())

    def _make_room(self, manifest: Manifest, partial: Path, *, keep: list[Path]) -> None:
        self._weights.policies.mkdir(parents=True, exist_ok=True)
        needed = manifest.tensor_bytes + (manifest.delta.size_bytes if manifest.delta else 0)
        for number in range(len(keep), -1, -1):
            self.prune(keep=keep[: max(number, 1)])
            if self._free(self._weights.policies) + _used(partial) >= needed + SPARE_BYTES:
                return
        raise self._disk_full(needed)

    def _disk_full(self, needed: int) -> DiskFullError:
        found = self._free(self._weights.policies)
        return DiskFullError(
            f"a policy of {needed} bytes does not fit into {self._weights.root}: "
            f"{found} bytes are free, {SPARE_BYTES} of them in reserve"
        )

    def prune(self, *, keep: Collection[Path]) -> None:
        """Remove every staged policy but these."""
        for folder in self._weights.policies.iterdir():
            if folder not in keep and not folder.name.endswith(PARTIAL):
                shutil.rmtree(folder)

    def clear_partial(self, *, but: Path | None = None) -> None:
        """Remove what earlier attempts at other policies left half-done."""
        self._weights.policies.mkdir(parents=True, exist_ok=True)
        for folder in self._weights.policies.glob(f"*{PARTIAL}"):
            if folder != but:
                shutil.rmtree(folder)


def _load(source: Source, base: BasePolicy) -> Manifest:
    stored = source.get(base.prefix.rstrip("/") + "/" + MANIFEST_FILE)
    return Manifest.from_bytes(stored, sha256=base.manifest_sha256)


def _used(folder: Path) -> int:
    """Bytes that a folder's files take up already."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir()) if folder.is_dir() else 0
