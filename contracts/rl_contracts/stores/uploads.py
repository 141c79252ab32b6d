"""Writes objects to a bucket, large ones in parts; aborts uploads that nobody finishes."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from concurrent.futures import Executor, wait
from pathlib import Path

from minio.error import S3Error

from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients.bucket import Bucket
from rl_contracts.stores.clients.bucket_errors import STORE
from rl_contracts.stores.clients.multipart import (
    PART_BYTES,
    Multipart,
    Source,
    Unfinished,
    unfinished,
)

log = logging.getLogger(__name__)


class Uploads(Bucket):
    """Writes the objects of a bucket."""

    def put(self, key: str, data: bytes) -> None:
        """Write an object; one of more than 5 MiB is sent in parts."""

        def send() -> None:
            with _begun_again(key):
                self._client.put_object(self.bucket, key, io.BytesIO(data), len(data))

        self.call(f"writing {key}", send, key=key)

    def put_file(self, key: str, path: Path) -> None:
        """Write an object from a file; a large file is sent in parts."""

        def send() -> None:
            with _begun_again(key):
                self._client.fput_object(self.bucket, key, str(path))

        self.call(f"writing {key}", send, key=key)

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
            with _begun_again(key):
                tags = [job.result() for job in jobs]
                self.call(f"completing {key}", lambda: upload.complete(tags), key=key)
        except RLError:
            for job in jobs:
                job.cancel()
            wait(jobs)
            with contextlib.suppress(RLError, S3Error):  # report the first error
                self.send(upload.abort, f"aborting the upload of {key}", key)
            raise

    def abort_uploads(self, prefix: str, *, before: float, but: str = "") -> int:
        """Abort unfinished uploads in parts, which a killed process leaves; return their number.

        Parts of an unfinished upload take up space and appear in no listing of objects. A process
        that lives sends an aborted upload again. A bucket that does not allow it keeps them.

        Args:
            prefix: of the keys; ends with a slash.
            before: seconds since 1970; later uploads stay.
            but: prefix of keys whose uploads stay; empty: none.
        """
        assert prefix.endswith("/"), "a prefix without a slash also matches longer names"
        doing = f"looking for unfinished uploads of {prefix}"
        try:
            uploads = self.call(
                doing, lambda: unfinished(self._client, bucket=self.bucket, prefix=prefix)
            )
            old = [
                upload
                for upload in uploads
                if upload.began_at < before and not (but and upload.key.startswith(but))
            ]
            for upload in old:
                self._abort(upload)
        except (AccessDeniedError, CommandRefusedError) as error:
            log.warning("unfinished uploads stay in the bucket: %s", error)
            return 0
        return len(old)

    def _abort(self, upload: Unfinished) -> None:
        def send() -> None:
            self._client._abort_multipart_upload(self.bucket, upload.key, upload.upload)

        try:
            self.call(f"aborting an upload of {upload.key}", send, key=upload.key)
        except S3Error as error:
            if error.code != "NoSuchUpload":  # it was completed or aborted meanwhile
                raise


@contextlib.contextmanager
def _begun_again(key: str) -> Iterator[None]:
    """Have the whole object sent again when the bucket, or another process, dropped the upload."""
    try:
        yield
    except S3Error as error:
        if error.code != "NoSuchUpload":
            raise
        cause = "the bucket dropped the upload"
        raise StoreUnavailableError(store=STORE, doing=key, cause=cause) from error
