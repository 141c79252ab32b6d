"""Staging: a published policy is downloaded and verified while the engine goes on serving."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError, RLError
from rl_contracts.stores.objects import Objects
from rl_sampler.policy.base import companions
from rl_sampler.policy.verify import Signature, check_folder, check_manifest
from rl_sampler.weights import MANIFEST_FILE, POINTER_FILE, Staged, WeightsFolder

logger = logging.getLogger(__name__)

SPARE_BYTES = 16 << 20
PARTIAL = ".partial"


class DiskFullError(RLError):
    """The weights folder cannot hold another policy."""


class StagingEndedError(RLError):
    """Nobody waits for this policy any more."""


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written."""
    return shutil.disk_usage(folder).free


class Stager:
    """Puts verified policies under their own names in the weights folder. Blocking."""

    def __init__(
        self,
        objects: Objects,
        *,
        weights: WeightsFolder,
        signature: Signature,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._objects = objects
        self._weights = weights
        self._signature = signature
        self._free = free

    def stage(
        self, pointer: PolicyPointer, *, keep: Collection[Path], ended: threading.Event
    ) -> Staged:
        """Make a published policy loadable.

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
        folder = self._weights.of_policy(pointer)
        if folder.is_dir():
            return self.restage(pointer)
        started = time.monotonic()
        prefix = pointer.prefix.rstrip("/") + "/"
        stored = self._objects.get(prefix + MANIFEST_FILE)
        manifest = Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)
        check_manifest(manifest, pointer=pointer, signature=self._signature)
        self._make_room(sum(entry.size_bytes for entry in manifest.files), keep=list(keep))
        partial = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{PARTIAL}")
        partial.mkdir(parents=True)
        try:
            for entry in manifest.files:
                if ended.is_set():
                    raise StagingEndedError(f"staging of version {pointer.version} was given up")
                self._objects.get_file(prefix + entry.name, partial / entry.name)
            check_folder(partial, manifest)
            self._complete(partial, stored=stored, pointer=pointer)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        logger.info("staged version %d in %.2f s", pointer.version, time.monotonic() - started)
        return Staged(pointer=pointer, folder=folder)

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

    def _complete(self, partial: Path, *, stored: bytes, pointer: PolicyPointer) -> None:
        # The engine may start from this folder, so it needs what stands beside the weights.
        for path in companions(self._weights.base):
            if not (partial / path.name).exists():
                os.link(path, partial / path.name)
        (partial / MANIFEST_FILE).write_bytes(stored)
        (partial / POINTER_FILE).write_text(pointer.model_dump_json())

    def _make_room(self, needed: int, *, keep: list[Path]) -> None:
        self._weights.policies.mkdir(parents=True, exist_ok=True)
        for number in range(len(keep), 0, -1):
            self.prune(keep=keep[:number])
            if self._free(self._weights.policies) >= needed + SPARE_BYTES:
                return
        self.prune(keep=keep[:1])
        found = self._free(self._weights.policies)
        if found < needed + SPARE_BYTES:
            raise DiskFullError(
                f"a policy of {needed} bytes does not fit into {self._weights.root}: "
                f"{found} bytes are free, {SPARE_BYTES} of them in reserve"
            )

    def prune(self, *, keep: Collection[Path]) -> None:
        """Remove every staged policy but these."""
        for folder in self._weights.policies.iterdir():
            if folder not in keep and not folder.name.endswith(PARTIAL):
                shutil.rmtree(folder)

    def clear_partial(self) -> None:
        """Remove what an earlier process left half-done; nobody may be staging."""
        self._weights.policies.mkdir(parents=True, exist_ok=True)
        for folder in self._weights.policies.glob(f"*{PARTIAL}"):
            shutil.rmtree(folder)
