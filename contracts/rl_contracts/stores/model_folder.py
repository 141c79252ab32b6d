"""A model's folder in a bucket: one that its user put there, or one that came from the hub."""

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
    """Where a model, or a tokenizer, lies."""

    manifest_uri: str
    """As the manifest names it."""
    uri: str
    """The folder, ``s3://…``."""
    commit: str = ""
    """Of the hub, where it came from there."""
    files: Mapping[str, ModelFile] | None = None
    """Those that came from the hub, by name; None: whatever lies there."""

    @classmethod
    def own(cls, uri: str) -> ModelLocation:
        """A folder that its user has put into a bucket."""
        return cls(manifest_uri=uri, uri=uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseLocations:
    """What training starts from."""

    model: ModelLocation
    tokenizer: ModelLocation | None = None
    """Takes the place of the model's own."""


class ModelFolder:
    """The wanted files of its top level."""

    def __init__(
        self,
        objects: Objects,
        place: ModelLocation,
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """List them.

        Args:
            objects: any bucket of the endpoint.
            place: the folder.
            wanted: tells a file by its name.

        Raises:
            ObjectMissingError: there is no such bucket.
        """
        bucket, key = split_uri(place.uri)
        self._bucket, self._prefix = objects.of_bucket(bucket), key.rstrip("/") + "/"
        self._files = place.files
        sizes = {
            stored_object.key.removeprefix(self._prefix): stored_object.size_bytes
            for stored_object in self._bucket.list(self._prefix)
        }
        self.empty = not sizes
        """Whether nothing lies there at all."""
        if place.files is not None:
            sizes = {file.name: file.size_bytes for file in place.files.values()}
        # Only the top level: subfolders hold other formats of the same weights.
        self.sizes = {
            name: size for name, size in sorted(sizes.items()) if "/" not in name and wanted(name)
        }
        """In bytes, by name."""

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(self.sizes.values())

    def download(self, folder: Path) -> None:
        """Put them into a local folder.

        Raises:
            IntegrityError: a file is not what it was when it was listed, or came from the hub.
            ObjectMissingError: one has gone.
        """
        for name, size in self.sizes.items():
            log.info("downloading %s (%d bytes)", name, size)
            sha256 = self._files[name].sha256 if self._files is not None else ""
            self._bucket.get_file(self._prefix + name, folder / name, sha256=sha256)
            if (folder / name).stat().st_size != size:
                raise IntegrityError(f"{name} was replaced while it was read")
