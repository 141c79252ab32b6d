"""Looks at a job's inputs before anything is started for it: stores, model, data.

Checks run in threads of their own; a verdict is kept until the inputs change, and a refusal is
looked into again after a while, so that a job recovers by itself when its user mends the cause.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError
from rl_contracts.documents.datasets.reading import SourceReader
from rl_contracts.documents.datasets.text import read_text
from rl_contracts.errors import (
    AccessDeniedError,
    ObjectMissingError,
    Refusal,
    RefusedError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.spec.data import DatasetSource
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects, split_uri
from rl_operator import names
from rl_operator.kinds import Key
from rl_operator.progress import StoresOf, plain

MODEL_FILES = ("config.json",)
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS = "*.safetensors"
READ_BYTES = 64 << 20
"""Of each dataset; the trainer reads all of it."""
PARQUET = b"PAR1"
RETRY_FIRST_SECONDS = 5.0
RETRY_MAX_SECONDS = 30.0
SECRET = "spec.storage.secretName"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is known of a job's inputs."""

    passed: bool = False
    refusals: tuple[Refusal, ...] = ()
    """Empty and not passed: being looked at."""
    again_after: float | None = None
    """Seconds until it is worth asking again."""


@dataclass(slots=True)
class _Check:
    fingerprint: str
    future: Future[tuple[Refusal, ...]] | None
    refusals: tuple[Refusal, ...] = ()
    failures: int = 0
    retry_at: float = 0.0


class Preflight:
    """Checks of all jobs."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        wake: Callable[[Key], None],
        threads: int = 2,
        retry_seconds: float = RETRY_FIRST_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            clock: monotonic seconds.
            wake: asks for a job to be reconciled; called from another thread.
            threads: checks under way at a time, each of which may hold a whole dataset.
            retry_seconds: a first refusal is looked into again after so long.
        """
        self._clock = clock
        self._wake = wake
        self._retry_seconds = retry_seconds
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="preflight")
        self._checks: dict[Key, _Check] = {}
        self._parsed: dict[tuple[str, str, str], tuple[Refusal, ...]] = {}
        self._lock = threading.Lock()

    def verdict(self, key: Key, spec: RLJobSpec, found: StoresOf) -> Verdict:
        """What is known by now; starts a check where one is due."""
        if found.refusal is not None:
            self.forget(key)
            return Verdict(refusals=(found.refusal,), again_after=self._retry_seconds)
        fingerprint = names.digest(
            [found.version, *(spec.model_dump(mode="json", include={"model", "data"}).values())]
        )
        with self._lock:
            check = self._checks.get(key)
            if check is None or check.fingerprint != fingerprint:
                check = self._checks[key] = _Check(fingerprint, None)
                self._start(key, check, spec, found)
            elif check.future is not None and check.future.done():
                del self._checks[key]  # an unexpected error must not leave it looking passed
                self._finish(check)
                self._checks[key] = check
            elif check.future is None and check.refusals and self._clock() >= check.retry_at:
                self._start(key, check, spec, found)
            return self._told(check)

    def forget(self, key: Key) -> None:
        """Drop what is held of a job: the next verdict looks anew."""
        with self._lock:
            self._checks.pop(key, None)

    def close(self) -> None:
        """Start no more checks."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: Key, check: _Check, spec: RLJobSpec, found: StoresOf) -> None:
        assert found.stores is not None
        check.future = self._executor.submit(self._look, spec, found.stores)
        check.future.add_done_callback(lambda _: self._wake(key))

    def _finish(self, check: _Check) -> None:
        assert check.future is not None
        future, check.future = check.future, None
        check.refusals = future.result()
        check.failures = check.failures + 1 if check.refusals else 0
        delay = min(self._retry_seconds * 2.0 ** (check.failures - 1), RETRY_MAX_SECONDS)
        check.retry_at = self._clock() + delay

    def _told(self, check: _Check) -> Verdict:
        if check.refusals:  # stands while the next look is under way
            wait = max(0.5, check.retry_at - self._clock()) if check.future is None else None
            return Verdict(refusals=check.refusals, again_after=wait)
        return Verdict(passed=check.future is None)

    def _look(self, spec: RLJobSpec, stores: Stores) -> tuple[Refusal, ...]:
        return _stores(stores) or (*_model(spec, stores), *self._data(spec, stores))

    def _data(self, spec: RLJobSpec, stores: Stores) -> Iterator[Refusal]:
        for split, sources in spec.data.by_split.items():
            for index, source in enumerate(sources):
                skip = spec.data.on_bad_record == "Skip"
                yield from self._dataset(
                    source, stores, field=f"spec.data.{split}[{index}]", skip=skip
                )

    def _dataset(
        self, source: DatasetSource, stores: Stores, *, field: str, skip: bool
    ) -> tuple[Refusal, ...]:
        if not source.uri.startswith("s3://"):
            return ()  # the trainer's pod alone can see it, and refuses it in the same words
        bucket, key = split_uri(source.uri)
        objects = stores.objects.of_bucket(bucket)
        try:
            found = objects.stat(key)
            known = (field, source.model_dump_json(), f"{found.etag} {skip}")
            if known not in self._parsed:
                self._parsed[known] = _parse(objects, key, source, field=field, skip=skip)
            return self._parsed[known]
        except RLError as error:
            return (_refused(error, f"{field}.uri", source.uri, what="Dataset"),)


def _parse(
    objects: Objects, key: str, source: DatasetSource, *, field: str, skip: bool
) -> tuple[Refusal, ...]:
    """Read the beginning of a file as the trainer will read all of it."""
    if key.endswith(".parquet"):
        return _parquet(objects, key, source, field=field)

    def consume(chunks: Iterator[bytes]) -> None:
        reader = SourceReader(source, field=field, skip=skip)
        for _ in reader.read(_beginning(chunks), file=source.uri):
            pass
        reader.check_any()

    try:
        objects.read_chunks(key, consume)
    except RefusedError as error:
        return (error.refusal,)
    return ()


def _parquet(
    objects: Objects, key: str, source: DatasetSource, *, field: str
) -> tuple[Refusal, ...]:
    """Tell a Parquet file by how it begins; its columns are read by the trainer."""

    def begin(chunks: Iterator[bytes]) -> bytes:
        return next(chunks, b"")[: len(PARQUET)]

    if objects.read_chunks(key, begin) == PARQUET:
        return ()
    return (
        Refusal(
            field=f"{field}.uri",
            value=source.uri[:200],
            reason="DatasetMalformed",
            message=f"{source.uri} is no Parquet file.",
            remedy="Upload it again, or name a file of its type.",
        ),
    )


def _beginning(chunks: Iterator[bytes]) -> Iterator[RawRecord]:
    """Records of the first ``READ_BYTES``; one that is cut there is left out."""
    cut = False

    def first() -> Iterator[bytes]:
        nonlocal cut
        received = 0
        for chunk in chunks:
            cut = received >= READ_BYTES
            if cut:
                return
            received += len(chunk)
            yield chunk

    try:
        for one in read_text(first()):
            if not (cut and one.problem):
                yield one
    except UnreadableError:
        if not cut:
            raise


def _stores(stores: Stores) -> tuple[Refusal, ...]:
    try:
        stores.mongo.ensure_indexes()
    except (StoreUnavailableError, AccessDeniedError) as error:
        return (_refused(error, SECRET, "mongoUri", what="StateStore"),)
    try:
        stores.objects.check()
    except RLError as error:
        return (_refused(error, SECRET, stores.objects.bucket, what="Bucket"),)
    return ()


def _model(spec: RLJobSpec, stores: Stores) -> tuple[Refusal, ...]:
    tokenizer = spec.model.tokenizer_uri
    if tokenizer is None:
        return _folder(stores, "uri", spec.model.uri, (*MODEL_FILES, TOKENIZER_FILE, WEIGHTS))
    return (
        *_folder(stores, "uri", spec.model.uri, (*MODEL_FILES, WEIGHTS)),
        *_folder(stores, "tokenizerUri", tokenizer, (TOKENIZER_FILE,), what="Tokenizer"),
    )


def _folder(
    stores: Stores, name: str, uri: str, wanted: Sequence[str], *, what: str = "Model"
) -> tuple[Refusal, ...]:
    """What a folder of ``spec.model`` lacks."""
    field = f"spec.model.{name}"
    bucket, key = split_uri(uri)
    prefix = key.rstrip("/") + "/"
    try:
        found = {one.key[len(prefix) :] for one in stores.objects.of_bucket(bucket).list(prefix)}
    except RLError as error:
        return (_refused(error, field, uri, what=what),)
    if not found:
        return (_refused(ObjectMissingError(uri), field, uri, what=what),)
    missing = [one for one in wanted if not fnmatch.filter(found, one)]
    if not missing:
        return ()
    return (
        Refusal(
            field=field,
            value=uri,
            reason=f"{what}Incomplete",
            message=f"The folder lacks {', '.join(missing)}.",
            remedy=f"Upload the whole {what.lower()} in Hugging Face layout.",
        ),
    )


def _refused(error: RLError, field: str, value: str, *, what: str) -> Refusal:
    """A store's error as the refusal of the field that led to it."""
    if isinstance(error, ObjectMissingError):
        reason, remedy = f"{what}NotFound", "Create it, or mend the name."
    elif isinstance(error, AccessDeniedError):
        reason = f"{what}AccessDenied"
        remedy = (
            error.remedy or "Mend the credentials in the stores' Secret, or what they permit."
        )  # fmt: skip
    elif isinstance(error, StoreUnavailableError):
        reason = f"{what}Unreachable"
        remedy = error.remedy or "Mend the address in the stores' Secret, or bring the server up."
    else:
        reason, remedy = f"{what}Unreadable", "Upload it again."
    said = (
        error.what if isinstance(error, (AccessDeniedError, StoreUnavailableError)) else str(error)
    )
    message = f"{plain(said)}."
    return Refusal(field=field, value=value[:200], reason=reason, message=message, remedy=remedy)
