"""Whether a job's stores, model and data can be what its trainer will read.

Of a dataset the beginning is read, as the trainer will read all of it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

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
from rl_contracts.spec.data import HUB_SCHEME, DatasetSource
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.unexpected import UnexpectedAnswerError, unexpected_answers
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects, split_uri
from rl_operator.state.progress import plain

MODEL_FILES = ("config.json",)
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS = "*.safetensors"
READ_BYTES = 64 << 20
"""Of each dataset; the trainer reads all of it."""
PARQUET = b"PAR1"
SECRET = "spec.storage.secretName"
KEPT_FILES = 5000


class InputChecks:
    """Checks inputs; an unchanged dataset is parsed once. For any thread."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, str, str], tuple[Refusal, ...]] = {}

    def check(self, spec: RLJobSpec, stores: Stores) -> tuple[Refusal, ...]:
        """Return what is wrong with a job's inputs: only the stores if these do not answer."""
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
            with unexpected_answers():
                found = objects.stat(key)
                known = (field, source.model_dump_json(), f"{found.etag} {skip}")
                verdict = self._parsed.get(known)
                if verdict is None:
                    verdict = _parse(objects, key, source, field=field, skip=skip)
                    if len(self._parsed) >= KEPT_FILES:
                        self._parsed.clear()
                    self._parsed[known] = verdict
                return verdict
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
        with unexpected_answers():
            stores.mongo.ensure_indexes()
    except (StoreUnavailableError, AccessDeniedError, UnexpectedAnswerError) as error:
        return (_refused(error, SECRET, "mongoUri", what="StateStore"),)
    try:
        with unexpected_answers():
            stores.objects.check()
    except RLError as error:
        return (_refused(error, SECRET, stores.objects.bucket, what="Bucket"),)
    return ()


def _model(spec: RLJobSpec, stores: Stores) -> tuple[Refusal, ...]:
    """What lies in buckets; the pods alone ask the hub, and refuse in words like these."""
    tokenizer = spec.model.tokenizer_uri
    found: list[Refusal] = []
    own = (TOKENIZER_FILE,) if tokenizer is None else ()
    if not spec.model.uri.startswith(HUB_SCHEME):
        found += _folder(stores, "uri", spec.model.uri, (*MODEL_FILES, *own, WEIGHTS))
    if tokenizer is not None and not tokenizer.startswith(HUB_SCHEME):
        found += _folder(stores, "tokenizerUri", tokenizer, (TOKENIZER_FILE,), what="Tokenizer")
    return tuple(found)


def _folder(
    stores: Stores, name: str, uri: str, wanted: Sequence[str], *, what: str = "Model"
) -> tuple[Refusal, ...]:
    """What a folder of ``spec.model`` lacks."""
    field = f"spec.model.{name}"
    bucket, key = split_uri(uri)
    prefix = key.rstrip("/") + "/"
    try:
        with unexpected_answers():
            listed = stores.objects.of_bucket(bucket).list(prefix)
        found = {one.key[len(prefix) :] for one in listed}
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
        reason, remedy = f"{what}NotFound", "Create it, or fix the name."
    elif isinstance(error, AccessDeniedError):
        reason = f"{what}AccessDenied"
        remedy = error.remedy or "Fix the credentials in the stores' Secret, or grant them access."
    elif isinstance(error, StoreUnavailableError):
        reason = f"{what}Unreachable"
        remedy = error.remedy or "Fix the address in the stores' Secret, or start the server."
    elif isinstance(error, UnexpectedAnswerError):
        reason, remedy = f"{what}Refused", "Fix what the store names, there or in its Secret."
    else:
        reason, remedy = f"{what}Unreadable", "Upload it again."
    said = (
        error.what if isinstance(error, (AccessDeniedError, StoreUnavailableError)) else str(error)
    )
    message = f"{plain(said)}."
    return Refusal(field=field, value=value[:200], reason=reason, message=message, remedy=remedy)
