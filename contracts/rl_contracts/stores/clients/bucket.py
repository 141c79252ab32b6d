"""S3 client of a bucket: retries requests, translates errors and streams bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError
from minio.helpers import check_bucket_name
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from rl_contracts.errors import (
    AccessDeniedError,
    IntegrityError,
    ObjectMissingError,
    ObjectTooLargeError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients import remedies
from rl_contracts.stores.clients.bucket_errors import STORE, translate
from rl_contracts.stores.clients.identity import REMEDY as IDENTITY_REMEDY
from rl_contracts.stores.clients.identity import CloudIdentity, IdentityError, provider_of
from rl_contracts.stores.clients.multipart import Requests
from rl_contracts.stores.clients.settings import StoreSettings, malformed
from rl_contracts.stores.clients.tls import trusting
from rl_contracts.stores.clients.wait_log import WaitLog

T = TypeVar("T")
NO_ANSWER = (
    urllib3.exceptions.HTTPError,
    ServerError,
    InvalidResponseError,
    ParseError,
    OSError,
)
"""Errors of the client when nothing answers, or the answer is not from an S3 server."""
CHUNK_BYTES = 1 << 20


class Bucket:
    """Sends the requests to a bucket of an S3 endpoint."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        bucket: str = "",
        patience_seconds: float = 120.0,
        server_name: str = "",
        memory_bytes: int | None = None,
    ) -> None:
        """Create a client; nothing is sent before the first call.

        Args:
            settings: endpoint and keys.
            bucket: another bucket of the same endpoint; default the settings' own.
            patience_seconds: how long a call is retried while the bucket does not answer.
            server_name: host name to expect in the certificate, when the endpoint is a
                port-forward.
            memory_bytes: largest object that is read into memory, whatever its reader's bound;
                None: the reader's bound alone counts.

        Raises:
            RefusedError: the endpoint is not a valid address.
        """
        self._settings, self._server_name = settings, server_name
        self.bucket = bucket or settings.s3_bucket
        self._valid_name = _valid_name(self.bucket)
        self.prefix = settings.s3_prefix
        self._memory_bytes = memory_bytes
        self._patience = patience_seconds
        provider = provider_of(settings)
        self._identity = provider if isinstance(provider, CloudIdentity) else None
        self._denials = remedies.S3_IDENTITY_CODES if self._identity else remedies.S3_CODES
        self._http = http = _pool(
            settings,
            connect_seconds=max(1.0, min(5.0, patience_seconds)),
            server_name=server_name,
        )
        try:
            endpoint = urlsplit(settings.s3_endpoint)
            secure = endpoint.scheme == "https"
            self._remedies = remedies.S3 if secure else remedies.S3_WITHOUT_TLS
            self._client = Minio(
                endpoint.netloc,
                credentials=provider,
                secure=secure,
                region=settings.s3_region,
                http_client=http,
            )
        except ValueError as error:
            raise malformed("s3Endpoint: not a host with an optional port") from error
        self._requests = Requests(self._client, http, bucket=self.bucket, credentials=provider)
        if settings.s3_addressing_style == "virtual":
            self._client.enable_virtual_style_endpoint()  # type: ignore[no-untyped-call]  # minio's
        elif settings.s3_addressing_style == "path":
            self._client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]  # minio's

    def uri(self, key: str) -> str:
        """The ``s3://`` URI of a key."""
        return f"s3://{self.bucket}/{key}"

    def call(self, doing: str, operation: Callable[[], T], *, key: str = "") -> T:
        """Run a request; retry while the bucket does not answer.

        Raises:
            ObjectMissingError: the key or the bucket does not exist.
            AccessDeniedError: the credentials are rejected.
            CommandRefusedError: the bucket can never do it.
            StoreUnavailableError: after ``patience_seconds``.
        """
        attempts = Retrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            before_sleep=WaitLog(STORE, doing, patience_seconds=self._patience),
            reraise=True,
        )
        result: T = attempts(self.send, operation, doing, key)
        return result

    def send(self, operation: Callable[[], T], doing: str, key: str) -> T:
        """Run a request without retries; raises the errors of ``call``.

        Only where the bucket rejects the temporary credentials of the pod's identity, it is sent
        once more with new ones.
        """
        try:
            return self._sent(operation, doing, key)
        except AccessDeniedError as error:
            identity = self._identity
            if identity is None or error.cause not in remedies.S3_EXPIRED or not identity.renew():
                raise
        return self._sent(operation, doing, key)

    def _sent(self, operation: Callable[[], T], doing: str, key: str) -> T:
        if not self._valid_name:  # e.g. the address of a server
            raise ObjectMissingError(f"s3://{self.bucket}")
        try:
            return operation()
        except S3Error as error:
            meaning = translate(error, doing, bucket=self.bucket, key=key, denials=self._denials)
            if meaning is error:
                raise
            raise meaning from error
        except IdentityError as error:
            raise AccessDeniedError(
                store=STORE, doing=doing, cause=str(error), remedy=IDENTITY_REMEDY
            ) from error
        except NO_ANSWER as error:
            # A server behind the address may not be an S3 server (yet); a kept connection would
            # send every retry to it.
            self._http.clear()
            text = f"{type(error).__name__}: {error}"
            remedy = remedies.remedy(text, self._remedies, ca="s3Ca", address="s3Endpoint")
            # The writer of the Secret chose the server: never show a page of it to them.
            cause = text.partition(", Body:")[0][:300]
            raise StoreUnavailableError(
                store=STORE, doing=doing, cause=cause, remedy=remedy
            ) from error

    def receive_range(self, key: str, begin: int, end: int) -> Iterator[bytes]:
        """Stream the bytes [begin, end) of an object."""
        response = self._client.get_object(self.bucket, key, offset=begin, length=end - begin)
        try:
            if int(response.headers["Content-Length"]) != end - begin:
                raise IntegrityError(f"{self.uri(key)} ends before byte {end}")
            while begin < end:
                # Without decoding there is no extra copy.
                chunk = response.read(min(CHUNK_BYTES, end - begin), decode_content=False)
                if not chunk:
                    raise urllib3.exceptions.IncompleteRead(begin, end - begin)
                begin += len(chunk)
                yield chunk
        finally:
            response.close()
            response.release_conn()

    def receive(self, key: str, *, most: int | None = None) -> Iterator[bytes]:
        """Stream all bytes of an object as they are stored.

        Args:
            key: key of the object.
            most: largest size in bytes; None: any.

        Raises:
            ObjectTooLargeError: it is larger; nothing was read.
        """
        response = self._client.get_object(self.bucket, key)
        try:
            expected = int(response.headers["Content-Length"])
            if most is not None and expected > most:
                raise ObjectTooLargeError(self.uri(key), size_bytes=expected, most=most)
            received = 0
            # Decoded, an object with a Content-Encoding could be a thousand times as large.
            for chunk in response.stream(CHUNK_BYTES, decode_content=False):
                received += len(chunk)
                yield chunk
            if received != expected:
                raise urllib3.exceptions.IncompleteRead(received, expected - received)
        finally:
            response.close()
            response.release_conn()


def _valid_name(bucket: str) -> bool:
    """Whether the name is a valid bucket name."""
    try:
        check_bucket_name(bucket)
    except ValueError:
        return False
    return True


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
