"""Objects of a bucket: immutable, verified when written and read."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from minio.deleteobjects import DeleteObject
from minio.error import S3Error

from rl_contracts.errors import (
    IntegrityError,
    ObjectMissingError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients.bucket import STORE, Bucket
from rl_contracts.stores.clients.multipart import PART_BYTES, Multipart, Source

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Size, entity tag and age of an object."""

    key: str
    size_bytes: int
    etag: str
    modified_at: float = 0.0
    """Seconds since 1970 by the bucket's clock; 0 when unknown."""


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an ``s3://`` URI; raises ValueError for any other URI."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError(f"{uri!r} is not an s3:// URI")
    return parts.netloc, parts.path.lstrip("/")


class Objects(Bucket):
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
        )

    def shared_token(self, purpose: str) -> str:
        """Derive a token that only holders of the bucket's secret key can compute.

        Args:
            purpose: what the token is for; each purpose has its own token.
        """
        secret = self._settings.s3_secret_key.get_secret_value()
        return hmac.new(secret.encode(), f"rl-operator/{purpose}".encode(), "sha256").hexdigest()

    def check(self) -> None:
        """Check that the bucket exists and is accessible; raises the errors of ``call``."""
        exists = self.call("checking the bucket", lambda: self._client.bucket_exists(self.bucket))
        if not exists:
            raise ObjectMissingError(f"s3://{self.bucket}")

    def make_bucket(self) -> None:
        """Create the bucket if it does not exist."""

        def make() -> None:
            if not self._client.bucket_exists(self.bucket):
                self._client.make_bucket(self.bucket)

        self.call("creating the bucket", make)

    def put(self, key: str, data: bytes) -> None:
        """Write an object in a single request."""

        def send() -> None:
            self._client.put_object(self.bucket, key, io.BytesIO(data), len(data))

        self.call(f"writing {key}", send, key=key)

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a file; a large file is sent in parts."""
        self.call(
            f"writing {key}",
            lambda: self._client.fput_object(self.bucket, key, str(path)),
            key=key,
        )

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write an object straight from memory; a large one is sent in parallel parts.

        Args:
            key: key of the object; it appears only when it is complete.
            source: returns the content of a part; called again for a part that failed.
            size_bytes: length of the content.
            executor: sends the parts; its threads limit how many at a time.
        """
        doing = f"writing {key}"
        if size_bytes <= PART_BYTES:
            body = source(0, size_bytes)
            self.call(doing, lambda: self._requests.send("PUT", key, {}, body), key=key)
            return
        # The bucket may drop an upload that took too long; then the whole object is sent again.
        self.call(doing, lambda: self._put_parts(key, source, size_bytes, executor), key=key)

    def _put_parts(self, key: str, source: Source, size_bytes: int, executor: Executor) -> None:
        upload = Multipart(self._requests, key)

        def put(number: int, offset: int) -> str:
            body = source(offset, min(PART_BYTES, size_bytes - offset))
            doing = f"writing part {number} of {key}"
            return self.call(doing, lambda: upload.put(number, body), key=key)

        jobs = [
            executor.submit(put, number, offset)
            for number, offset in enumerate(range(0, size_bytes, PART_BYTES), start=1)
        ]
        try:
            tags = [job.result() for job in jobs]
            self.call(f"completing {key}", lambda: upload.complete(tags), key=key)
        except S3Error as error:
            if error.code != "NoSuchUpload":
                raise
            cause = "the bucket dropped the upload"
            raise StoreUnavailableError(store=STORE, doing=key, cause=cause) from error
        except RLError:
            for job in jobs:
                job.cancel()
            wait(jobs)
            with contextlib.suppress(RLError):  # report the first error
                self.send(upload.abort, f"aborting the upload of {key}", key)
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

    def get(self, key: str) -> bytes:
        """Read a whole object."""
        return self.call(f"reading {key}", lambda: b"".join(self.receive(key)), key=key)

    def read_chunks(self, key: str, consume: Callable[[Iterator[bytes]], T]) -> T:
        """Read an object in chunks without holding all of it in memory.

        Args:
            key: key of the object.
            consume: receives the chunks and may stop early; called again from the start when the
                bucket fails midway.
        """
        return self.call(f"reading {key}", lambda: consume(self.receive(key)), key=key)

    def get_file(self, key: str, path: Path, *, sha256: str = "") -> None:
        """Download an object to a file, which gets its name only after verification.

        Raises:
            IntegrityError: the digest differs.
        """
        partial = path.with_name(path.name + ".partial")

        def receive() -> str:
            digest = hashlib.sha256()
            with partial.open("wb") as file:
                for chunk in self.receive(key):
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
            f"checking {key}", lambda: self._client.stat_object(self.bucket, key), key=key
        )
        return ObjectStat(key, answer.size or 0, answer.etag or "")

    def list(self, prefix: str) -> list[ObjectStat]:
        """All objects under a prefix, sorted by key."""

        def listed() -> list[ObjectStat]:
            listing = self._client.list_objects(self.bucket, prefix=prefix, recursive=True)
            return [
                ObjectStat(
                    item.object_name or "",
                    item.size or 0,
                    item.etag or "",
                    item.last_modified.timestamp() if item.last_modified else 0.0,
                )
                for item in listing
            ]

        return self.call(f"listing {prefix}", listed, key=prefix)

    def delete_prefix(self, prefix: str) -> int:
        """Delete all objects under a prefix that ends with a slash; return their number."""
        assert prefix.endswith("/"), "a prefix without a slash also matches longer names"
        objects = self.list(prefix)

        def delete() -> None:
            wanted = [DeleteObject(item.key) for item in objects]
            for error in self._client.remove_objects(self.bucket, wanted):
                raise OSError(f"{error.code}: {error.message}")

        self.call(f"deleting {prefix}", delete, key=prefix)
        return len(objects)
