"""Stages a published policy: downloads and verifies it while the engine goes on serving."""

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
from rl_contracts.turns import folder_name
from rl_sampler.engine.weights import (
    MANIFEST_FILE,
    POINTER_FILE,
    Staged,
    WeightsFolder,
)
from rl_sampler.policy import handover, page_cache
from rl_sampler.policy.base import companions
from rl_sampler.policy.build import build
from rl_sampler.policy.fetch import Source, StagingCancelledError
from rl_sampler.policy.relay.client import Relay
from rl_sampler.policy.route import Route, cheapest_route
from rl_sampler.policy.verify import Signature, check_folder, check_manifest

logger = logging.getLogger(__name__)

PARTIAL = ".partial"
ROUTE_FILE = ".route"
LOCK_POLL_SECONDS = 0.1


class Stager:
    """Stages policies in the weights folder. All methods block."""

    def __init__(
        self,
        objects: Objects,
        *,
        weights: WeightsFolder,
        signature: Signature,
        free: Callable[[Path], int] = free_bytes,
        relay: Relay | None = None,
    ) -> None:
        """Make a stager; nothing is downloaded yet.

        Args:
            objects: the bucket.
            weights: the folder of staged policies.
            signature: the tensors that every policy must hold.
            free: gives the free bytes of a folder's disk.
            relay: asks other samplers before the bucket; None for the bucket only.
        """
        self._objects, self._relay = objects, relay
        self._weights = weights
        self._signature = signature
        self._free = free
        self._lock = threading.Lock()

    def stage(
        self, pointer: PolicyPointer, *, keep: Collection[Path], cancelled: threading.Event
    ) -> Staged:
        """Download and verify a published policy, and read it into memory if it is large.

        Parts that were downloaded stay when the bucket fails or staging is cancelled. The next call
        for the same policy resumes from them.

        Args:
            pointer: to the policy.
            keep: folders of staged policies to keep, the most important first: the policy that the
                engine holds, then the previous policy, which is removed where the disk is short.
            cancelled: set by the caller when it no longer wants the result.

        Raises:
            IntegrityError: a file does not match the manifest, the pointer or the model.
            ObjectMissingError: retention removed the policy.
            DiskFullError: the disk has no room for the policy.
            StagingCancelledError: ``cancelled`` was set.
        """
        with self._exclusively(pointer, cancelled):
            folder = self._weights.of_policy(pointer)
            if folder.is_dir():
                return self.restage(pointer)
            started = time.monotonic()
            if handover.offered(self._weights, pointer):
                manifest = self._take_over(pointer, folder, keep=keep)
                logger.info(
                    "took over version %d in %.2f s", pointer.version, time.monotonic() - started
                )
                return self._in_memory(pointer, manifest, started=started, cancelled=cancelled)
            source: Source = self._objects
            if self._relay is not None:
                source = self._relay.source(source, pointer, cancelled=cancelled)
            try:
                route, manifest = self._stage_from(
                    source, pointer, folder, keep=keep, cancelled=cancelled
                )
            except IntegrityError as error:
                if source is self._objects:
                    raise
                logger.warning(
                    "version %d from a peer does not match its manifest, using the bucket: %s",
                    pointer.version,
                    error,
                )
                route, manifest = self._stage_from(
                    self._objects, pointer, folder, keep=keep, cancelled=cancelled
                )
            logger.info(
                "staged version %d in %.2f s: %d bytes downloaded, %d deltas applied",
                pointer.version,
                time.monotonic() - started,
                route.download_bytes,
                len(route.deltas),
            )
            return self._in_memory(pointer, manifest, started=started, cancelled=cancelled)

    def _in_memory(
        self,
        pointer: PolicyPointer,
        manifest: Manifest,
        *,
        started: float,
        cancelled: threading.Event,
    ) -> Staged:
        """The staged policy, which is read into memory if it is large."""
        folder = self._weights.of_policy(pointer)
        if manifest.tensor_bytes > page_cache.READ_FROM_BYTES:
            read_from = time.monotonic()
            page_cache.read(folder, cancelled)
            seconds = time.monotonic() - read_from
            logger.info("read version %d into memory in %.2f s", pointer.version, seconds)
        return Staged(
            pointer=pointer,
            folder=folder,
            size_bytes=manifest.tensor_bytes,
            seconds=time.monotonic() - started,
        )

    def _stage_from(
        self,
        source: Source,
        pointer: PolicyPointer,
        folder: Path,
        *,
        keep: Collection[Path],
        cancelled: threading.Event,
    ) -> tuple[Route, Manifest]:
        """Stage a policy from a source: the bucket, or a peer with the bucket behind it."""
        prefix = pointer.prefix.rstrip("/") + "/"
        stored = source.get(prefix + MANIFEST_FILE)
        manifest = Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)
        check_manifest(manifest, pointer=pointer, signature=self._signature)
        partial = folder.with_name(folder.name + PARTIAL)
        self.clear_partial(but=partial)
        self._make_room(manifest, partial, keep=list(keep))
        route = self._build(source, manifest, prefix, partial, cancelled=cancelled)
        self._complete(partial, stored=stored, pointer=pointer)
        partial.rename(folder)
        return route, manifest

    def _take_over(
        self, pointer: PolicyPointer, folder: Path, *, keep: Collection[Path]
    ) -> Manifest:
        """Verify what the trainer of this pod has put into the weights folder, and keep it."""
        offer = self._weights.handover / folder.name
        stored = (offer / MANIFEST_FILE).read_bytes()
        manifest = Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)
        check_manifest(manifest, pointer=pointer, signature=self._signature)
        partial = folder.with_name(folder.name + PARTIAL)
        self.clear_partial()
        self.prune(keep=keep)
        try:
            handover.link(offer, manifest, partial)
            check_folder(partial, manifest)
        except IntegrityError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self._complete(partial, stored=stored, pointer=pointer)
        partial.rename(folder)
        handover.discard(self._weights, through=folder.name)
        return manifest

    def restage(self, pointer: PolicyPointer) -> Staged:
        """Verify a policy that was staged earlier by reading all of it; remove it when damaged.

        Raises:
            IntegrityError: the folder is damaged.
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
        return Staged(pointer=pointer, folder=folder, size_bytes=manifest.tensor_bytes)

    @contextlib.contextmanager
    def _exclusively(self, pointer: PolicyPointer, cancelled: threading.Event) -> Iterator[None]:
        # A cancelled attempt may still hang in a request.
        while not self._lock.acquire(timeout=LOCK_POLL_SECONDS):
            if cancelled.is_set():
                raise StagingCancelledError(f"staging version {pointer.version} was cancelled")
        try:
            yield
        finally:
            self._lock.release()

    def _build(
        self,
        source: Source,
        manifest: Manifest,
        prefix: str,
        partial: Path,
        *,
        cancelled: threading.Event,
    ) -> Route:
        """Build by the cheapest route; if its local start is damaged, by a route without one."""
        load = functools.partial(_load, source)
        route = cheapest_route(manifest, prefix=prefix, local=self._local, load=load)
        try:
            self._build_verified(source, route, manifest, partial, cancelled=cancelled)
        except (IntegrityError, ObjectMissingError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            if route.local is None:
                raise
            logger.warning(
                "version %d cannot be built from %s, downloading it whole: %s",
                manifest.version,
                route.local.name,
                error,
            )
            route = cheapest_route(manifest, prefix=prefix, local=lambda base: None, load=load)
            self._build_verified(source, route, manifest, partial, cancelled=cancelled)
        return route

    def _build_verified(
        self,
        source: Source,
        route: Route,
        manifest: Manifest,
        partial: Path,
        *,
        cancelled: threading.Event,
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
            build(source, route, manifest, partial, cancelled=cancelled, keep_delta=keep_delta)
            built = time.monotonic()
            check_folder(
                partial, manifest, digests_checked=not route.deltas and route.local is None
            )
        except (StoreUnavailableError, StagingCancelledError):
            raise
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        note.unlink()
        logger.info(
            "version %d was built in %.2f s and verified in %.2f s",
            manifest.version,
            built - started,
            time.monotonic() - built,
        )

    def _local(self, base: BasePolicy) -> Path | None:
        folder = self._weights.policies / folder_name(base.prefix)
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
            # The engine may start from this folder, so it needs config and tokenizer, too.
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
        free = self._free(self._weights.policies)
        return DiskFullError(
            f"a policy of {needed} bytes does not fit into {self._weights.root}: "
            f"{free} bytes are free, {SPARE_BYTES} of them in reserve"
        )

    def prune(self, *, keep: Collection[Path]) -> None:
        """Remove all staged policies except these folders."""
        for folder in self._weights.policies.iterdir():
            if folder not in keep and not folder.name.endswith(PARTIAL):
                shutil.rmtree(folder)

    def clear_partial(self, *, but: Path | None = None) -> None:
        """Remove incomplete folders of earlier attempts, except one."""
        self._weights.policies.mkdir(parents=True, exist_ok=True)
        for folder in self._weights.policies.glob(f"*{PARTIAL}"):
            if folder != but:
                shutil.rmtree(folder)


def _load(source: Source, base: BasePolicy) -> Manifest:
    stored = source.get(base.prefix.rstrip("/") + "/" + MANIFEST_FILE)
    return Manifest.from_bytes(stored, sha256=base.manifest_sha256)


def _used(folder: Path) -> int:
    """Bytes that a folder's files take up on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir()) if folder.is_dir() else 0
