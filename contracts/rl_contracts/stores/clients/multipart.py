"""Uploads large objects from memory in parallel parts.

The bytes of a part are not hashed for the request's signature (``UNSIGNED-PAYLOAD``): readers
verify them against the digests of the policy's manifest, and hashing would cost most of the CPU
time. Only a failed part is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeAlias
from urllib.parse import SplitResult, parse_qs, urlsplit, urlunsplit
from xml.etree import ElementTree

import urllib3
from minio import Minio
from minio import time as minio_time
from minio.credentials.providers import Provider
from minio.error import S3Error, ServerError
from minio.signer import sign_v4_s3

PART_BYTES = 32 << 20
"""Size of a part; S3 requires at least 5 MiB and allows at most 10,000 parts."""
UNSIGNED = "UNSIGNED-PAYLOAD"
MAX_PAGES = 10
"""Of 1,000 unfinished uploads each."""

Source: TypeAlias = Callable[[int, int], Sequence[memoryview]]
"""Returns ``(offset, size)`` bytes of the content, in any number of pieces."""


class Requests:
    """Sends signed requests with bodies straight from memory, without a copy."""

    def __init__(
        self, client: Minio, http: urllib3.PoolManager, *, bucket: str, credentials: Provider
    ) -> None:
        self._client, self._http, self._bucket = client, http, bucket
        self._provider = credentials

    def send(
        self, method: str, key: str, query: Mapping[str, str], body: Sequence[memoryview | bytes]
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and read the whole answer.

        Raises:
            S3Error: the bucket's error.
            ServerError: the answer is not one of S3.
        """
        url, region = self._address(method, key, query)
        now, credentials = minio_time.utcnow(), self._provider.retrieve()
        headers: dict[str, str | list[str] | tuple[str]] = {
            "Host": url.netloc,
            "x-amz-content-sha256": UNSIGNED,
            "x-amz-date": minio_time.to_amz_date(now),
        }
        if credentials.session_token:
            headers["X-Amz-Security-Token"] = credentials.session_token
        signed = sign_v4_s3(
            method=method,
            url=url,
            region=region,
            headers=headers,
            credentials=credentials,
            content_sha256=UNSIGNED,
            date=now,
        )
        sent = {name: str(value) for name, value in signed.items()}
        sent["Content-Length"] = str(sum(map(len, body)))
        response = self._http.urlopen(method, urlunsplit(url), body=body, headers=sent)
        if response.status in {200, 204} and not _is_error(response.data):
            return response
        if response.data.lstrip().startswith(b"<"):
            raise S3Error.fromxml(response)
        raise ServerError(f"{method} was answered by {response.status}", response.status)

    def _address(self, method: str, key: str, query: Mapping[str, str]) -> tuple[SplitResult, str]:
        # Only the client knows the addressing style and the bucket's region.
        url = urlsplit(
            self._client.get_presigned_url(
                method, self._bucket, key, timedelta(hours=1), extra_query_params=dict(query)
            )
        )
        scope = parse_qs(url.query)["X-Amz-Credential"][0]
        wanted = "&".join(part for part in url.query.split("&") if not part.startswith("X-Amz-"))
        return url._replace(query=wanted), scope.split("/")[-3]


def _is_error(answer: bytes) -> bool:
    # Completing an upload may be answered by status 200 with an error in the body.
    return b"<Error>" in answer[:1000]


class Multipart:
    """An object that is uploaded in parts."""

    def __init__(self, requests: Requests, key: str) -> None:
        self._requests, self._key = requests, key
        answer = requests.send("POST", key, {"uploads": ""}, ())
        self._upload = _text(answer.data, "UploadId")

    def put(self, number: int, body: Sequence[memoryview]) -> str:
        """Send part ``number`` (≥ 1); return its entity tag."""
        query = {"partNumber": str(number), "uploadId": self._upload}
        return self._requests.send("PUT", self._key, query, body).headers["ETag"]

    def complete(self, tags: Sequence[str]) -> None:
        """Complete the object from its parts, in order."""
        root = ElementTree.Element("CompleteMultipartUpload")
        for number, tag in enumerate(tags, start=1):
            part = ElementTree.SubElement(root, "Part")
            ElementTree.SubElement(part, "PartNumber").text = str(number)
            ElementTree.SubElement(part, "ETag").text = tag
        body = ElementTree.tostring(root)
        self._requests.send("POST", self._key, {"uploadId": self._upload}, (body,))

    def abort(self) -> None:
        """Abort the upload and delete its parts."""
        self._requests.send("DELETE", self._key, {"uploadId": self._upload}, ())


class Unfinished(NamedTuple):
    """An upload that was neither completed nor aborted; its parts take up space."""

    key: str
    upload: str
    began_at: float
    """Seconds since 1970 by the bucket's clock; 0 when unknown."""


def unfinished(client: Minio, *, bucket: str, prefix: str) -> set[Unfinished]:
    """Unfinished uploads of keys that begin with ``prefix``.

    MinIO lists uploads by a prefix only where it is a whole key, so it is asked for all, too; at
    most ``MAX_PAGES`` pages, because a bucket may hold much that is not ours.
    """
    unfinished = set()
    for asked in (prefix, ""):
        key_marker = upload_marker = None
        for _ in range(MAX_PAGES):
            page = client._list_multipart_uploads(  # minio has no public method for it
                bucket, prefix=asked, key_marker=key_marker, upload_id_marker=upload_marker
            )
            for upload in page.uploads:
                began = upload.initiated_time
                at = began.timestamp() if began else 0.0
                unfinished.add(Unfinished(upload.object_name or "", upload.upload_id or "", at))
            key_marker, upload_marker = page.next_key_marker, page.next_upload_id_marker
            if not page.is_truncated:
                break
    return {upload for upload in unfinished if upload.key.startswith(prefix)}


def _text(answer: bytes, name: str) -> str:
    element = ElementTree.fromstring(answer.strip()).find(f"{{*}}{name}")
    if element is None or not element.text:
        raise ServerError(f"an answer without {name}", 200)
    return element.text
