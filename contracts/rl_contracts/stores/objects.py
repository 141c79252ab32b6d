"""The bucket: immutable objects, verified on the way in and out."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.deleteobjects import DeleteObject
from minio.error import InvalidResponseError, S3Error, ServerError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from rl_contracts.errors import (
    AccessDeniedError,
    IntegrityError,
    ObjectMissingError,
    StoreUnavailableError,
)
from rl_contracts.stores.settings import StoreSettings

T = TypeVar("T")
STORE = "bucket"
MISSING_CODES = {"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"}
ACCESS_CODES = {
    "AccessDenied",
    "AuthorizationHeaderMalformed",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
}
UNAVAILABLE_CODES = {
    "InternalError",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "XMinioServerNotInitialized",
    "XMinioStorageFull",
}
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What the bucket says of an object."""

    key: str
    size_bytes: int
    etag: str


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an ``s3://`` URI; ValueError for another one."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError(f"{uri!r} is not an s3:// URI")
    return parts.netloc, parts.path.lstrip("/")


class Objects:
    """One bucket of an S3 endpoint."""

    def __init__(
        self, settings: StoreSettings, *, bucket: str = "", patience_seconds: float = 120.0
    ) -> None:
        """Prepare a client; nothing is sent before the first call.

        Args:
            settings: endpoint and keys.
            bucket: another bucket of the same endpoint; default the settings' own.
            patience_seconds: how long a call is repeated while the bucket does not answer.
        """
        endpoint = urlsplit(settings.s3_endpoint)
        self._settings = settings
        self.bucket = bucket or settings.s3_bucket
        self.prefix = settings.s3_prefix
        self._patience = patience_seconds
        timeout = urllib3.Timeout(connect=max(1.0, min(5.0, patience_seconds)), read=60.0)
        self._client = Minio(
            endpoint.netloc,
            access_key=settings.s3_access_key.get_secret_value(),
            secret_key=settings.s3_secret_key.get_secret_value(),
            secure=endpoint.scheme == "https",
            region=settings.s3_region,
            http_client=urllib3.PoolManager(timeout=timeout, retries=False, maxsize=16),
        )

    def of_bucket(self, bucket: str) -> Objects:
        """The same endpoint's other bucket."""
        if bucket == self.bucket:
            return self
        return Objects(self._settings, bucket=bucket, patience_seconds=self._patience)

    def uri(self, key: str) -> str:
        """The ``s3://`` URI of a key."""
        return f"s3://{self.bucket}/{key}"

    def call(self, doing: str, operation: Callable[[], T], *, key: str = "") -> T:
        """Run one request, again while the bucket does not answer.

        Raises:
            ObjectMissingError: the key or the bucket is not there.
            AccessDeniedError: the keys are refused.
            StoreUnavailableError: after ``patience_seconds``.
        """
        attempts = Retrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        result: T = attempts(self._send, operation, doing, key)
        return result

    def _send(self, operation: Callable[[], T], doing: str, key: str) -> T:
        try:
            return operation()
        except S3Error as error:
            if error.code in MISSING_CODES:
                missing = f"s3://{self.bucket}" if error.code == "NoSuchBucket" else self.uri(key)
                raise ObjectMissingError(missing) from error
            if error.code in ACCESS_CODES:
                cause = str(error.code)
                raise AccessDeniedError(store=STORE, doing=doing, cause=cause) from error
            if error.code in UNAVAILABLE_CODES:
                cause = str(error.code)
                raise StoreUnavailableError(store=STORE, doing=doing, cause=cause) from error
            raise
        except (urllib3.exceptions.HTTPError, ServerError, InvalidResponseError, OSError) as error:
            cause = f"{type(error).__name__}: {error}"[:300]
            raise StoreUnavailableError(store=STORE, doing=doing, cause=cause) from error

    def check(self) -> None:
        """Ask whether the bucket is there and ours; raises as ``call`` does."""
        found = self.call("looking for the bucket", lambda: self._client.bucket_exists(self.bucket))
        if not found:
            raise ObjectMissingError(f"s3://{self.bucket}")

    def make_bucket(self) -> None:
        """Create the bucket when it is not there."""

        def make() -> None:
            if not self._client.bucket_exists(self.bucket):
                self._client.make_bucket(self.bucket)

        self.call("creating the bucket", make)

    def put(self, key: str, data: bytes) -> None:
        """Write an object whole."""

        def send() -> None:
            self._client.put_object(self.bucket, key, io.BytesIO(data), len(data))

        self.call(f"writing {key}", send, key=key)

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a file, in parts where it is large."""
        self.call(
            f"writing {key}",
            lambda: self._client.fput_object(self.bucket, key, str(path)),
            key=key,
        )

    def get(self, key: str) -> bytes:
        """Read an object whole."""
        return self.call(f"reading {key}", lambda: b"".join(self._chunks(key)), key=key)

    def read_lines(
        self, key: str, consume: Callable[[Iterator[bytes]], T], *, limit_bytes: int
    ) -> T:
        """Read an object line by line, without holding it whole.

        Args:
            key: which object.
            consume: is given the lines; called anew when the bucket fails on the way.
            limit_bytes: no line that ends after so many bytes is read.
        """
        return self.call(
            f"reading {key}", lambda: consume(self._lines(key, limit_bytes)), key=key
        )  # fmt: skip

    def get_file(self, key: str, path: Path, *, sha256: str = "") -> None:
        """Read an object into a file, verified before the file has its name.

        Raises:
            IntegrityError: the bytes have another digest.
        """
        partial = path.with_name(path.name + ".partial")

        def receive() -> str:
            digest = hashlib.sha256()
            with partial.open("wb") as file:
                for chunk in self._chunks(key):
                    digest.update(chunk)
                    file.write(chunk)
            return digest.hexdigest()

        found = self.call(f"reading {key}", receive, key=key)
        if sha256 and found != sha256:
            partial.unlink()
            raise IntegrityError(f"{self.uri(key)} has digest {found}, expected {sha256}")
        partial.rename(path)

    def _chunks(self, key: str) -> Iterator[bytes]:
        response = self._client.get_object(self.bucket, key)
        try:
            expected = int(response.headers["Content-Length"])
            received = 0
            for chunk in response.stream(CHUNK_BYTES):
                received += len(chunk)
                yield chunk
            if received != expected:
                raise urllib3.exceptions.IncompleteRead(received, expected - received)
        finally:
            response.close()
            response.release_conn()

    def _lines(self, key: str, limit_bytes: int) -> Iterator[bytes]:
        received, rest = 0, b""
        for chunk in self._chunks(key):
            received += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if received >= limit_bytes:
                return
        if rest:
            yield rest

    def stat(self, key: str) -> ObjectStat:
        """Size and entity tag of an object; raises ObjectMissingError when it is not there."""
        found = self.call(
            f"looking for {key}", lambda: self._client.stat_object(self.bucket, key), key=key
        )
        return ObjectStat(key, found.size or 0, found.etag or "")

    def list(self, prefix: str) -> list[ObjectStat]:
        """All objects under a prefix, by key."""

        def listed() -> list[ObjectStat]:
            found = self._client.list_objects(self.bucket, prefix=prefix, recursive=True)
            return [
                ObjectStat(one.object_name or "", one.size or 0, one.etag or "") for one in found
            ]

        return self.call(f"listing {prefix}", listed, key=prefix)

    def delete_prefix(self, prefix: str) -> int:
        """Delete everything under a prefix that ends with a slash; return how many objects."""
        assert prefix.endswith("/"), "a prefix without its slash also matches its longer siblings"
        found = self.list(prefix)

        def delete() -> None:
            wanted = [DeleteObject(one.key) for one in found]
            for error in self._client.remove_objects(self.bucket, wanted):
                raise OSError(f"{error.code}: {error.message}")

        self.call(f"deleting {prefix}", delete, key=prefix)
        return len(found)
