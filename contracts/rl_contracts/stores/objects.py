"""Objects of a bucket: immutable, verified when written and read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import urllib3
from minio.deleteobjects import DeleteObject
from minio.error import S3Error

from rl_contracts.disk import check_room
from rl_contracts.errors import IntegrityError, ObjectMissingError, ObjectTooLargeError
from rl_contracts.stores.clients.bucket_errors import MISSING_CODES
from rl_contracts.stores.uploads import Uploads

T = TypeVar("T")
S3_SCHEME = "s3://"
OBJECT_BYTES = 256 << 20
"""Largest object that is read into memory, where its reader has no bound of its own."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Size, entity tag and age of an object."""

    key: str
    size_bytes: int
    etag: str
    modified_at: float = 0.0
    """Seconds since 1970 by the bucket's clock; 0 when unknown."""


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an ``s3://`` URI; raises ValueError for any other URI.

    Keys may have any characters, also those that begin a query or a fragment in other URIs.
    """
    bucket, _, key = uri.removeprefix(S3_SCHEME).partition("/")
    if not uri.startswith(S3_SCHEME) or not bucket:
        raise ValueError(f"{uri!r} is not an s3:// URI")
    return bucket, key.lstrip("/")


class Objects(Uploads):
    """Reads, writes and lists the objects of a bucket."""

    def of_bucket(self, bucket: str) -> Objects:
        """Another bucket of the same endpoint."""
        if bucket == self.bucket:
            return self
        return Objects(
            self._settings,
            bucket=bucket,
            patience_seconds=self._patience,
            server_name=self._server_name,
            memory_bytes=self._memory_bytes,
        )

    def shared_token(self, purpose: str) -> str:
        """As ``StoreSettings.shared_token``."""
        return self._settings.shared_token(purpose)

    def check(self) -> None:
        """Check that the bucket exists and is accessible; raises the errors of ``call``."""
        exists = self.call("checking the bucket", self._exists)
        if not exists:
            raise ObjectMissingError(f"s3://{self.bucket}")

    def make_bucket(self) -> None:
        """Create the bucket if it does not exist."""

        def make() -> None:
            if not self._exists():
                self._client.make_bucket(self.bucket)

        self.call("creating the bucket", make)

    def _exists(self) -> bool:
        return self._head(lambda: self._client.bucket_exists(self.bucket), self.prefix)

    def _head(self, operation: Callable[[], T], prefix: str) -> T:
        """Send a HEAD request; where it is refused, ask for the reason by a listing.

        An answer to HEAD has no body, so AWS says in it neither that the region is another one nor
        that credentials have expired.
        """
        try:
            return operation()
        except S3Error as error:
            if error.code == "BadRequest":
                next(self._client.list_objects(self.bucket, prefix=prefix), None)
            raise

    def read_range(
        self, key: str, *, offset: int, size_bytes: int, consume: Callable[[bytes], None]
    ) -> None:
        """Pass a range of an object's bytes to ``consume``, in order and each exactly once.

        After a failure of the bucket it continues with the next byte.

        Raises:
            IntegrityError: the object ends before the end of the range.
        """
        position, end = offset, offset + size_bytes

        def receive() -> None:
            nonlocal position
            for chunk in self.receive_range(key, position, end):
                position += len(chunk)
                consume(chunk)

        if not size_bytes:
            return
        try:
            self.call(f"reading {key} from byte {offset}", receive, key=key)
        except S3Error as error:
            if error.code != "InvalidRange":
                raise
            raise IntegrityError(f"{self.uri(key)} ends before byte {end}") from error

    def get(self, key: str, *, most: int = OBJECT_BYTES) -> bytes:
        """Read a whole object into memory.

        Args:
            key: key of the object.
            most: largest size in bytes; the client's own bound may be smaller.

        Raises:
            ObjectTooLargeError: it is larger; nothing was read.
        """
        if self._memory_bytes is not None:
            most = min(most, self._memory_bytes)
        return self.call(f"reading {key}", lambda: b"".join(self.receive(key, most=most)), key=key)

    def read_chunks(self, key: str, consume: Callable[[Iterator[bytes]], T]) -> T:
        """Read an object in chunks without holding all of it in memory.

        Args:
            key: key of the object.
            consume: receives the chunks and may stop early; called again from the start when the
                bucket fails midway.
        """
        return self.call(f"reading {key}", lambda: consume(self.receive(key)), key=key)

    def get_file(self, key: str, path: Path, *, sha256: str = "", most: int | None = None) -> None:
        """Download an object to a file, which gets its name only after verification.

        Args:
            key: key of the object.
            path: the file.
            sha256: digest to expect; empty: any.
            most: largest size in bytes; None: what fits on the disk.

        Raises:
            IntegrityError: the digest differs.
            ObjectTooLargeError: it is larger than ``most``, or became larger; nothing was read.
            DiskFullError: it does not fit on the disk; nothing was read.
        """
        partial = path.with_name(path.name + ".partial")
        size = self.stat(key).size_bytes
        if most is not None and size > most:
            raise ObjectTooLargeError(self.uri(key), size_bytes=size, most=most)
        check_room(size, path.parent, what=self.uri(key))

        def receive() -> str:
            digest = hashlib.sha256()
            with partial.open("wb") as file:
                for chunk in self.receive(key, most=size):
                    digest.update(chunk)
                    file.write(chunk)
            return digest.hexdigest()

        digest = self.call(f"reading {key}", receive, key=key)
        if sha256 and digest != sha256:
            partial.unlink()
            raise IntegrityError(f"{self.uri(key)} has digest {digest}, expected {sha256}")
        partial.rename(path)

    def stat(self, key: str) -> ObjectStat:
        """Size and entity tag of an object; raises ObjectMissingError when it does not exist."""
        answer = self.call(
            f"checking {key}",
            lambda: self._head(lambda: self._client.stat_object(self.bucket, key), key),
            key=key,
        )
        return ObjectStat(key, answer.size or 0, answer.etag or "")

    def list(self, prefix: str, *, most: int | None = None) -> list[ObjectStat]:
        """All objects under a prefix, sorted by key.

        Args:
            prefix: of the keys.
            most: number of objects after which the listing ends; None: all.
        """

        def listed() -> list[ObjectStat]:
            listing = self._client.list_objects(self.bucket, prefix=prefix, recursive=True)
            return [
                ObjectStat(
                    item.object_name or "",
                    item.size or 0,
                    item.etag or "",
                    item.last_modified.timestamp() if item.last_modified else 0.0,
                )
                for item in islice(listing, most)
            ]

        return self.call(f"listing {prefix}", listed, key=prefix)

    def entries(self, folder: str, *, most: int) -> tuple[str, ...]:
        """Names of the first ``most`` objects and folders directly in a folder.

        Folders end with a slash. The bucket leaves out what is in them, so that costs nothing.
        """
        assert not folder or folder.endswith("/"), "a prefix without a slash is no folder"

        def listed() -> tuple[str, ...]:
            listing = self._client.list_objects(self.bucket, prefix=folder)
            names = ((item.object_name or "").removeprefix(folder) for item in listing)
            return tuple(islice(filter(None, names), most))

        return self.call(f"listing {folder}", listed, key=folder)

    def delete_page(self, prefix: str, *, most: int = 1000) -> int:
        """Delete some of the objects under a prefix that ends with a slash; return their number.

        Called again until it returns 0, it deletes all of them in bounded memory.
        """
        assert prefix.endswith("/"), "a prefix without a slash also matches longer names"

        def delete() -> int:
            listing = self._client.list_objects(self.bucket, prefix=prefix, recursive=True)
            page = [item.object_name or "" for item in islice(listing, most)]
            self._remove(page)
            return len(page)

        return self.call(f"deleting {prefix}", delete, key=prefix)

    def delete_prefix(self, prefix: str) -> int:
        """Delete all objects under a prefix that ends with a slash; return their number."""
        assert prefix.endswith("/"), "a prefix without a slash also matches longer names"
        keys = [item.key for item in self.list(prefix)]
        self.call(f"deleting {prefix}", lambda: self._remove(keys), key=prefix)
        return len(keys)

    def _remove(self, keys: Sequence[str]) -> None:
        """Delete objects; raises the S3Error of one that stays.

        The bucket answers with status 200 and an error for each of these.
        """
        wanted = [DeleteObject(key) for key in keys]
        for error in self._client.remove_objects(self.bucket, wanted):
            if error.code not in MISSING_CODES:
                response = urllib3.HTTPResponse()
                raise S3Error(response, error.code, error.message, error.name, None, None)
