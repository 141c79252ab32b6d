"""Imports a manifest's hf:// models into the bucket once; all pods read them there.

The first pod imports, under a lease that only saves work: two pods at once write the same bytes
under the same names. The first pod that reaches the hub pins the commit for the run before any file
is downloaded. Once all files are in the bucket, no pod contacts the hub again.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rl_contracts.disk import check_room
from rl_contracts.documents.model import ModelFile, ModelFiles, Part, PinnedModel
from rl_contracts.errors import (
    IntegrityError,
    ObjectMissingError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.hub.calls import STORE
from rl_contracts.hub.models import HubFile, HubModels, HubSource
from rl_contracts.hub.selection import ModelAddress, is_hub_uri
from rl_contracts.spec.data import ModelSource
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.model_folder import BaseLocations, ModelLocation
from rl_contracts.stores.models import ModelKey

log = logging.getLogger(__name__)

MODEL_FIELD, TOKENIZER_FIELD = "spec.model.uri", "spec.model.tokenizerUri"
LEASE_SECONDS = 30.0
POLL_SECONDS = 1.0
ROOT = "models/"
"""Prefix of imported models, below the namespace's prefix and shared by its runs."""


class Progress(Protocol):
    """Reports what a pod does, and interrupts it when it must stop."""

    def say(self, phase: str) -> None:
        """Report what the pod does or waits for."""

    def check(self) -> None:
        """Raise an error when this pod must stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelImporter:
    """Imports the models of a run into the bucket, for a pod that needs them."""

    stores: Stores
    hub: HubModels
    run: str
    holder: str
    """Name of this pod, unique among the run's pods."""
    folder: Path
    """Local folder for a file at a time."""
    progress: Progress
    wait_seconds: float
    """How long to wait for another pod that imports a model."""
    clock: Callable[[], float] = time.monotonic
    _never: threading.Event = field(default_factory=threading.Event, init=False)

    def base(self, model: ModelSource) -> BaseLocations:
        """Locations of a manifest's model and tokenizer; imports those of the hub.

        Raises:
            RefusedError: the model does not exist on the hub, or access is denied.
            IntegrityError: a downloaded file does not match the hub's description.
            StoreUnavailableError: hub or store does not answer, or another pod took too long.
        """
        own = model.tokenizer_uri is None
        places = [
            self._place(wanted) if isinstance(wanted, HubSource) else ModelLocation.own(wanted)
            for wanted in (
                _wanted(MODEL_FIELD, model.uri, model.revision, own=own),
                *([] if own else [_wanted(TOKENIZER_FIELD, f"{model.tokenizer_uri}", None)]),
            )
        ]
        return BaseLocations(model=places[0], tokenizer=None if own else places[1])

    def _place(self, wanted: HubSource) -> ModelLocation:
        key = ModelKey(
            run=self.run,
            endpoint=self.hub.endpoint,
            uri=wanted.uri,
            revision=wanted.address.revision,
            part=wanted.part,
        )
        began = self.clock()
        while True:
            pinned = self.stores.models.get(key)
            files = self._imported(wanted, pinned) if pinned is not None else None
            if pinned is not None and files is not None:
                return self._location(wanted, pinned.commit, files)
            if self._hold(key):
                with self._holding(key):
                    return self._import(wanted, key, pinned)
            if self.clock() - began > self.wait_seconds:
                doing = f"waiting for another pod to import {wanted.uri} into the bucket"
                cause = f"it is incomplete after {self.wait_seconds:.0f} s"
                raise StoreUnavailableError(store=STORE, doing=doing, cause=cause)
            self.progress.say(f"waiting for another pod to import {wanted.uri} into the bucket")
            self.progress.check()
            self._never.wait(POLL_SECONDS)

    def _hold(self, key: ModelKey) -> bool:
        name = f"bring.{key.short_name}"
        return self.stores.leases.hold(self.run, name, holder=self.holder, seconds=LEASE_SECONDS)

    @contextmanager
    def _holding(self, key: ModelKey) -> Iterator[None]:
        """Keep the lease during the import; losing it only costs duplicate work."""
        ended = threading.Event()

        def extend() -> None:
            while not ended.wait(LEASE_SECONDS / 3):
                try:
                    self._hold(key)
                except RLError as error:
                    log.warning("%s", error)

        thread = threading.Thread(target=extend, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def _import(
        self, wanted: HubSource, key: ModelKey, pinned: PinnedModel | None
    ) -> ModelLocation:
        """Import a model; its commit is pinned before any file is downloaded."""
        self.progress.say(f"asking the hub for {wanted.uri}")
        commit, described = self.hub.describe(wanted, commit=pinned.commit if pinned else "")
        if pinned is None:
            pinned = self.stores.models.pin(key, commit)
        if pinned.commit != commit:
            commit, described = self.hub.describe(wanted, commit=pinned.commit)
        prefix = self._prefix(wanted, commit)
        files = ModelFiles(
            repo=wanted.address.repo,
            commit=commit,
            part=wanted.part,
            files=self._copied(wanted, commit, described, prefix),
        )
        stored = files.to_bytes()
        sha256 = hashlib.sha256(stored).hexdigest()
        self.stores.objects.put(prefix + _list_name(sha256), stored)
        if self.stores.models.complete(key, sha256).files_sha256 != sha256:
            raise IntegrityError(f"files of {wanted.uri} at {commit} changed since the run began")
        log.info("%s is in the bucket: commit %s", wanted.uri, commit)
        return self._location(wanted, commit, files)

    def _copied(
        self, wanted: HubSource, commit: str, described: list[HubFile], prefix: str
    ) -> list[ModelFile]:
        """Copy the hub's files, except large files that an earlier attempt already copied."""
        sizes = {
            stored_object.key.removeprefix(prefix): stored_object.size_bytes
            for stored_object in self.stores.objects.list(prefix)
        }
        total, done, copied = sum(file.size_bytes for file in described), 0, []
        missing = [file.size_bytes for file in described if sizes.get(file.name) != file.size_bytes]
        check_room(max(missing, default=0), self.folder, what=f"a file of {wanted.uri}")
        for file in described:
            self.progress.say(f"importing {wanted.uri} into the bucket: {done} of {total} bytes")
            self.progress.check()
            copied_before = file.sha256 and sizes.get(file.name) == file.size_bytes
            sha256 = file.sha256 if copied_before else self._copy(wanted, commit, file, prefix)
            copied.append(ModelFile(name=file.name, size_bytes=file.size_bytes, sha256=sha256))
            done += file.size_bytes
        return copied

    def _copy(self, wanted: HubSource, commit: str, file: HubFile, prefix: str) -> str:
        folder = self.folder / "from-hub"
        try:
            path = self.hub.download(wanted, file, commit=commit, folder=folder)
            sha256 = file.check(path)
            self.stores.objects.put_file(prefix + file.name, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return sha256

    def _imported(self, wanted: HubSource, pinned: PinnedModel) -> ModelFiles | None:
        """The model's files, if all of them are in the bucket."""
        if not pinned.files_sha256:
            return None
        prefix = self._prefix(wanted, pinned.commit)
        try:
            stored = self.stores.objects.get(prefix + _list_name(pinned.files_sha256))
        except ObjectMissingError:
            return None
        files = ModelFiles.from_bytes(stored, sha256=pinned.files_sha256)
        sizes = {
            stored_object.key: stored_object.size_bytes
            for stored_object in self.stores.objects.list(prefix)
        }
        whole = all(sizes.get(prefix + file.name) == file.size_bytes for file in files.files)
        return files if whole else None

    def _prefix(self, wanted: HubSource, commit: str) -> str:
        host = re.sub(r"[^A-Za-z0-9.-]+", "-", self.hub.endpoint.partition("://")[2])
        repo = wanted.address.repo
        return f"{self.stores.objects.prefix}{ROOT}{host}/{repo}/{commit}/{wanted.part}/"

    def _location(self, wanted: HubSource, commit: str, files: ModelFiles) -> ModelLocation:
        return ModelLocation(
            manifest_uri=wanted.uri,
            uri=self.stores.objects.uri(self._prefix(wanted, commit)),
            commit=commit,
            files={file.name: file for file in files.files},
        )


def _wanted(field: str, uri: str, revision: str | None, *, own: bool = True) -> HubSource | str:
    if not is_hub_uri(uri):
        return uri
    part: Part = "model" if field == MODEL_FIELD else "tokenizer"
    address = ModelAddress.parse(uri, revision)
    return HubSource(field=field, uri=uri, address=address, part=part, own_tokenizer=own)


def _list_name(sha256: str) -> str:
    return f"files-{sha256[:16]}.json"
