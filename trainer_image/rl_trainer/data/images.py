"""Stores the images that records name: each is fetched and decoded once in an attempt."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from rl_contracts.capacity.shape import CONFIG_BYTES
from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.datasets.records import BadRecordError
from rl_contracts.documents.task import ImagePart, Message, Part
from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    ObjectTooLargeError,
    Refusal,
    RefusedError,
)
from rl_contracts.images import web
from rl_contracts.images.bounds import Bounds, bounds
from rl_contracts.images.decoder import BadImageError, Decoder
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.spec.data import Images
from rl_contracts.stores.files.images import ImageStore
from rl_contracts.stores.files.model_folder import ModelLocation
from rl_contracts.stores.objects import Objects, split_uri

FIELD = "spec.data.images"
Beside = Callable[[str], bytes]
"""Reads a file by its path relative to the records' file; raises BadImageError."""
BeforeEach = Callable[[int], None]


class ImageIntake:
    """Brings images into the run's folder in the bucket."""

    def __init__(
        self,
        limits: Images,
        *,
        objects: Objects,
        store: ImageStore,
        side: int,
        pixels: Bounds,
        before_each: BeforeEach = lambda count: None,
    ) -> None:
        """Begin an attempt.

        Args:
            limits: the manifest's.
            objects: any bucket of the endpoint.
            store: where images go.
            side: pixels on each side of what a token stands for.
            pixels: of an image as the model sees it.
            before_each: called before an image is fetched, with the number of those before it; what
                it raises ends the intake.
        """
        self._limits, self._objects, self._store = limits, objects, store
        self._decoder = Decoder(side=side, fewest=pixels.fewest, most=pixels.most)
        self._before_each, self._count = before_each, 0
        self._known: dict[str, ImagePart] = {}

    def close(self) -> None:
        """End the process that decodes."""
        self._decoder.close()

    def shown(self, example: Example, beside: Beside) -> Example:
        """The example with its images stored; raises BadRecordError for one that cannot be."""
        if not any(message.images for message in example.messages):
            return example
        return replace(
            example,
            messages=tuple(
                self._message(message, at, beside) for at, message in enumerate(example.messages)
            ),
        )

    def _message(self, message: Message, number: int, beside: Beside) -> Message:
        parts: list[Part] = []
        for at, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                try:
                    part = self._stored(part.source, beside)
                except BadImageError as error:
                    place = f"image {at} of message {number}"
                    raise BadRecordError(f"field {place!r} {error}") from error
            parts.append(part)
        return Message(role=message.role, content=tuple(parts))

    def _stored(self, source: str, beside: Beside) -> ImagePart:
        absolute = source.startswith(("s3://", "https://"))
        if absolute and source in self._known:
            return self._known[source]
        self._before_each(self._count)
        self._count += 1
        decoded = self._decoder.decode(self._file(source, beside))
        part = ImagePart(
            sha256=self._store.put(decoded.png), width=decoded.width, height=decoded.height
        )
        if absolute:
            self._known[source] = part
        return part

    def _file(self, source: str, beside: Beside) -> bytes:
        most = self._limits.max_bytes
        if source.startswith("data:"):
            return _decoded(source)
        if source.startswith("https://"):
            return web.fetch(source, most=most)
        file = self._object(source) if source.startswith("s3://") else beside(source)
        if len(file) > most:
            raise _too_large(len(file), most)
        return file

    def _object(self, uri: str) -> bytes:
        bucket, key = split_uri(uri)
        return read_object(self._objects.of_bucket(bucket), key, most=self._limits.max_bytes)


def read_object(objects: Objects, key: str, *, most: int) -> bytes:
    """An image file of a bucket; raises BadImageError where it is not there or too large."""
    try:
        return objects.get(key, most=most)
    except ObjectTooLargeError as error:
        raise _too_large(error.size_bytes, most) from error
    except ObjectMissingError as error:
        raise BadImageError(f"is not in the bucket: {error}") from error
    except AccessDeniedError as error:
        raise BadImageError("may not be read with the credentials for the bucket") from error


def read_mounted(folder: Path, path: str, *, most: int) -> bytes:
    """An image file below a mounted folder; links that leave it are not followed."""
    try:
        whole = (folder / path).resolve()
        if not whole.is_relative_to(folder.resolve()) or not whole.is_file():
            raise BadImageError(f"is not in the folder {folder}")
        size = whole.stat().st_size
        if size > most:
            raise _too_large(size, most)
        return whole.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise BadImageError(f"cannot be read in the folder {folder}: {error}"[:300]) from error


def beside_of(uri: str, objects: Objects, limits: Images) -> Beside:
    """Reads files beside a source's file."""
    most = limits.max_bytes
    if uri.startswith("s3://"):
        bucket, key = split_uri(uri)
        folder = PurePosixPath(key).parent
        return lambda path: read_object(objects.of_bucket(bucket), str(folder / path), most=most)
    if uri.startswith("file://"):
        mounted = Path(unquote(uri.removeprefix("file://"))).parent
        return lambda path: read_mounted(mounted, path, most=most)
    return _of_hub


def intake_for(
    limits: Images,
    place: ModelLocation,
    *,
    objects: Objects,
    store: ImageStore,
    before_each: BeforeEach,
) -> ImageIntake:
    """What brings images for the model in a folder of a bucket; see ``ImageIntake``.

    Raises:
        RefusedError: the model does not see images, or not of the manifest's sizes.
    """
    placeholders = Placeholders.of(_parsed(place, "config.json", objects))
    if placeholders is None:
        raise RefusedError(
            Refusal(
                field=FIELD,
                value="set",
                reason="OptionUnused",
                message=f"The model {place.manifest_uri[:200]} sees no images.",
                remedy="Remove it, or name a vision-language model of "
                "docs/reference/models.md in spec.model.uri.",
            )
        )
    pixels = bounds(limits, _parsed(place, "preprocessor_config.json", objects))
    return ImageIntake(
        limits,
        objects=objects,
        store=store,
        side=placeholders.side,
        pixels=pixels,
        before_each=before_each,
    )


def _parsed(place: ModelLocation, name: str, objects: Objects) -> dict[str, Any]:
    """A JSON file of a model; empty where it cannot be read, which its loading refuses."""
    bucket, key = split_uri(place.uri)
    try:
        content = json.loads(
            objects.of_bucket(bucket).get(f"{key.rstrip('/')}/{name}", most=CONFIG_BYTES)
        )
    except (ObjectMissingError, ObjectTooLargeError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _of_hub(path: str) -> bytes:
    raise BadImageError(
        f"is the path {path[:100]!r}, and files beside a source of the hub are not read: "
        "write s3://, https:// or a data URI"
    )


def _decoded(source: str) -> bytes:
    try:
        return base64.b64decode(source.partition(",")[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadImageError("is a data URI whose base64 cannot be read") from error


def _too_large(size: int, most: int) -> BadImageError:
    return BadImageError(f"has {size} bytes, more than {FIELD}.maxBytes = {most}")
