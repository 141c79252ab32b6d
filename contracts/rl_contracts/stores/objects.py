"""The bucket: immutable objects, verified on the way in and out."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
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
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores import remedies
from rl_contracts.stores.multipart import PART_BYTES, Multipart, Requests, Source
from rl_contracts.stores.settings import StoreSettings
from rl_contracts.stores.tls import trusting
from rl_contracts.stores.waiting import Told

T = TypeVar("T")
STORE = "bucket"
MISSING_CODES = {"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"}
UNAVAILABLE_CODES = {
    "InternalError",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "XMinioServerNotInitialized",
    *remedies.S3_FULL,
}
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What the bucket says of an object."""

    key: str
    size_bytes: int
    etag: str
    modified_at: float = 0.0
    """Seconds since 1970, by the bucket's clock."""


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an ``s3://`` URI; ValueError for another one."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError(f"{uri!r} is not an s3:// URI")
    return parts.netloc, parts.path.lstrip("/")


class Objects:
    """One bucket of an S3 endpoint."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        bucket: str = "",
        patience_seconds: float = 120.0,
        server_name: str = "",
    ) -> None:
        """Prepare a client; nothing is sent before the first call.

        Args:
            settings: endpoint and keys.
            bucket: another bucket of the same endpoint; default the settings' own.
            patience_seconds: how long a call is repeated while the bucket does not answer.
            server_name: whose certificate is wanted, where the endpoint is a tunnel's.
        """
        endpoint = urlsplit(settings.s3_endpoint)
        self._settings, self._server_name = settings, server_name
        self.bucket = bucket or settings.s3_bucket
        self.prefix = settings.s3_prefix
        self._patience = patience_seconds
        access = settings.s3_access_key.get_secret_value()
        secret = settings.s3_secret_key.get_secret_value()
        http = _pool(
            settings,
            connect_seconds=max(1.0, min(5.0, patience_seconds)),
            server_name=server_name,
        )
        self._client = Minio(
            endpoint.netloc,
            access_key=access,
            secret_key=secret,
            secure=endpoint.scheme == "https",
            region=settings.s3_region,
            http_client=http,
        )
        self._requests = Requests(
            self._client, http, bucket=self.bucket, access=access, secret=secret
        )
        if settings.s3_addressing_style == "virtual":
            self._client.enable_virtual_style_endpoint()  # type: ignore[no-untyped-call]  # minio's
        elif settings.s3_addressing_style == "path":
            self._client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]  # minio's

    def of_bucket(self, bucket: str) -> Objects:
        """The same endpoint's other bucket."""
        if bucket == self.bucket:
            return self
        return Objects(
            self._settings,
            bucket=bucket,
            patience_seconds=self._patience,
            server_name=self._server_name,
        )

    def shared_token(self, purpose: str) -> str:
        """A word that only holders of the bucket's secret key can make, and that does not tell it.

        Args:
            purpose: what it is for; each has another one.
        """
        secret = self._settings.s3_secret_key.get_secret_value()
        return hmac.new(secret.encode(), f"rl-operator/{purpose}".encode(), "sha256").hexdigest()

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
            before_sleep=Told(STORE, doing, patience_seconds=self._patience),
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
            cause = str(error.code)
            if cause in remedies.S3_CODES:
                remedy = remedies.S3_CODES[cause]
                raise AccessDeniedError(
                    store=STORE, doing=doing, cause=cause, remedy=remedy
                ) from error
            if error.code in UNAVAILABLE_CODES:
                remedy = remedies.S3_FULL.get(cause, "")
                raise StoreUnavailableError(
                    store=STORE, doing=doing, cause=cause, remedy=remedy
                ) from error
            raise
        except (urllib3.exceptions.HTTPError, ServerError, InvalidResponseError, OSError) as error:
            remedy = remedies.remedy(str(error), remedies.TLS, ca="s3Ca", address="s3Endpoint")
            cause = f"{type(error).__name__}: {error}"[:300]
            raise StoreUnavailableError(
                store=STORE, doing=doing, cause=cause, remedy=remedy
            ) from error

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

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write an object straight from memory, in parts where it is large.

        Args:
            key: which object; it has this key only when it is complete.
            source: the content; asked anew for a part that failed.
            size_bytes: length of the content.
            executor: sends the parts; as many at a time as it has threads.
        """
        doing = f"writing {key}"
        if size_bytes <= PART_BYTES:
            body = source(0, size_bytes)
            self.call(doing, lambda: self._requests.send("PUT", key, {}, body), key=key)
            return
        # The bucket may have forgotten an upload that took long: then all of it is sent again.
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
            cause = "the bucket forgot the upload"
            raise StoreUnavailableError(store=STORE, doing=key, cause=cause) from error
        except RLError:
            for job in jobs:
                job.cancel()
            wait(jobs)
            with contextlib.suppress(RLError):  # the first error counts
                self._send(upload.abort, f"giving up {key}", key)
            raise

    def read_range(
        self, key: str, *, offset: int, size_bytes: int, consume: Callable[[bytes], None]
    ) -> None:
        """Hand an object's bytes from ``offset`` on to ``consume``, in order and each once.

        Where the bucket fails on the way it goes on with the byte after the last one.

        Raises:
            IntegrityError: the object ends before that.
        """
        position, end = offset, offset + size_bytes

        def receive() -> None:
            nonlocal position
            for chunk in self._range(key, position, end):
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

    def _range(self, key: str, begin: int, end: int) -> Iterator[bytes]:
        response = self._client.get_object(self.bucket, key, offset=begin, length=end - begin)
        try:
            if int(response.headers["Content-Length"]) != end - begin:
                raise IntegrityError(f"{self.uri(key)} ends before byte {end}")
            while begin < end:
                # Not decoding spares a copy.
                chunk = response.read(min(CHUNK_BYTES, end - begin), decode_content=False)
                if not chunk:
                    raise urllib3.exceptions.IncompleteRead(begin, end - begin)
                begin += len(chunk)
                yield chunk
        finally:
            response.close()
            response.release_conn()

    def get(self, key: str) -> bytes:
        """Read an object whole."""
        return self.call(f"reading {key}", lambda: b"".join(self._chunks(key)), key=key)

    def read_chunks(self, key: str, consume: Callable[[Iterator[bytes]], T]) -> T:
        """Read an object piece by piece, without holding it whole.

        Args:
            key: which object.
            consume: is given the pieces, of which it need not take all; called anew when the
                bucket fails on the way.
        """
        return self.call(f"reading {key}", lambda: consume(self._chunks(key)), key=key)

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
                ObjectStat(
                    one.object_name or "",
                    one.size or 0,
                    one.etag or "",
                    one.last_modified.timestamp() if one.last_modified else 0.0,
                )
                for one in found
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


def _pool(
    settings: StoreSettings, *, connect_seconds: float, server_name: str
) -> urllib3.PoolManager:
    tls: dict[str, Any] = {}
    if settings.s3_endpoint.startswith("https:"):
        tls["ssl_context"] = trusting(settings.s3_ca)
        if server_name:
            tls |= {"server_hostname": server_name, "assert_hostname": server_name}
    timeout = urllib3.Timeout(connect=connect_seconds, read=60.0)
    return urllib3.PoolManager(timeout=timeout, retries=False, maxsize=16, **tls)
