"""A model's folder in a bucket, put there by its user or imported from the hub."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.model import ModelFile
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.objects import Objects, split_uri

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLocation:
    """Where a model or a tokenizer is stored."""

    manifest_uri: str
    """URI in the manifest."""
    uri: str
    """URI of the folder, ``s3://…``."""
    commit: str = ""
    """Commit of the hub; empty for a user's own folder."""
    files: Mapping[str, ModelFile] | None = None
    """Files imported from the hub, by name; None: every file in the folder."""

    @classmethod
    def own(cls, uri: str) -> ModelLocation:
        """A folder that its user put into a bucket."""
        return cls(manifest_uri=uri, uri=uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseLocations:
    """Locations of the model and the tokenizer that training starts from."""

    model: ModelLocation
    tokenizer: ModelLocation | None = None
    """Replaces the model's own tokenizer; None: the model's own."""


class ModelFolder:
    """The selected top-level files of a model's folder."""

    def __init__(
        self,
        objects: Objects,
        place: ModelLocation,
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """List the folder.

        Args:
            objects: any bucket of the endpoint.
            place: location of the folder.
            wanted: selects files by name.

        Raises:
            ObjectMissingError: the bucket does not exist.
        """
        bucket, key = split_uri(place.uri)
        self._bucket, self._prefix = objects.of_bucket(bucket), key.rstrip("/") + "/"
        self._files = place.files
        sizes = {
            stored_object.key.removeprefix(self._prefix): stored_object.size_bytes
            for stored_object in self._bucket.list(self._prefix)
        }
        self.empty = not sizes
        """Whether the folder has no objects at all."""
        if place.files is not None:
            sizes = {file.name: file.size_bytes for file in place.files.values()}
        # Only the top level: subfolders hold other formats of the same weights.
        self.sizes = {
            name: size for name, size in sorted(sizes.items()) if "/" not in name and wanted(name)
        }
        """Sizes in bytes by file name."""

    @property
    def size_bytes(self) -> int:
        """Total size in bytes."""
        return sum(self.sizes.values())

    def download(self, folder: Path) -> None:
        """Download the files into a local folder.

        Raises:
            IntegrityError: a file changed since it was listed or imported.
            ObjectMissingError: a file was deleted.
        """
        for name, size in self.sizes.items():
            log.info("downloading %s (%d bytes)", name, size)
            sha256 = self._files[name].sha256 if self._files is not None else ""
            self._bucket.get_file(self._prefix + name, folder / name, sha256=sha256, most=size)
            if (folder / name).stat().st_size != size:
                raise IntegrityError(f"{name} was replaced while it was being read")
