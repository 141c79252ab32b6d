"""Checks a job's stores, model and data before its trainer reads them.

Only the beginning of a dataset is read, in the way in which the trainer will read all of it.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.capacity.shape import CONFIG_BYTES, kept_fields
from rl_contracts.documents.datasets.harbor import CONFIG
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
from rl_contracts.spec.data import HARBOR, HUB_SCHEME, DatasetSource
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores import stored_groups
from rl_contracts.stores.clients.unexpected import UnexpectedAnswerError, unexpected_answers
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects, split_uri
from rl_reader.reach import plain

MODEL_FILES = ("config.json",)
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS = "*.safetensors"
READ_BYTES = 64 << 20
"""Most bytes that are read of each dataset; the trainer reads all of it."""
PARQUET = b"PAR1"
SECRET = "spec.storage.secretName"
KEPT_FILES = 5000
MOST_FILES = 10_000
"""Of a model's folder: a prefix may be that of a whole bucket."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has come to."""

    refusals: tuple[Refusal, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)
    """Sizes of the model as in its ``config.json``; empty where they are not known."""


Begin = Callable[[], SourceReader]
"""Begins to read a source from its first record."""


class InputChecks:
    """Checks inputs; an unchanged dataset is parsed once. Thread-safe."""

    def __init__(self, *, namespace: str) -> None:
        """Parse nothing yet; ``namespace``: of the jobs."""
        self._namespace = namespace
        self._parsed: dict[tuple[str, str, str], tuple[Refusal, ...]] = {}

    def check(self, spec: RLJobSpec, stores: Stores) -> Checked:
        """Check a job's inputs; if the stores do not answer, only their refusals are returned."""
        down = _stores(stores)
        if down:
            return Checked(down)
        refusals = (
            *_model(spec, stores),
            *self._data(spec, stores),
            *_rollouts(spec, stores, namespace=self._namespace),
        )
        return Checked(refusals) if refusals else Checked(model=_sizes(spec, stores))

    def _data(self, spec: RLJobSpec, stores: Stores) -> Iterator[Refusal]:
        skip = spec.data.on_bad_record == "Skip"
        images = spec.data.images
        read_as = f"{skip} {spec.algorithm.objective} {spec.reward.model_dump_json()} {images}"
        for split, sources in spec.data.by_split.items():
            for index, source in enumerate(sources):
                field = f"spec.data.{split}[{index}]"
                begin = functools.partial(
                    SourceReader,
                    source,
                    field=field,
                    skip=skip,
                    compares=spec.compares,
                    images=images,
                )
                yield from self._dataset(source, stores, begin, field=field, read_as=read_as)

    def _dataset(
        self, source: DatasetSource, stores: Stores, begin: Begin, *, field: str, read_as: str
    ) -> tuple[Refusal, ...]:
        if not source.uri.startswith("s3://"):
            return ()  # only the trainer's pod can read it, and it refuses with the same message
        bucket, key = split_uri(source.uri)
        objects = stores.objects.of_bucket(bucket)
        try:
            if source.format == HARBOR:
                return _tasks(objects, key, source, field=field)
            with unexpected_answers():
                stat = objects.stat(key)
                known = (field, source.model_dump_json(), f"{stat.etag} {read_as}")
                verdict = self._parsed.get(known)
                if verdict is None:
                    verdict = _parse(objects, key, source, begin, field=field)
                    if len(self._parsed) >= KEPT_FILES:
                        self._parsed.clear()
                    self._parsed[known] = verdict
                return verdict
        except RLError as error:
            return (_refused(error, f"{field}.uri", source.uri, what="Dataset"),)


def _tasks(
    objects: Objects, prefix: str, source: DatasetSource, *, field: str
) -> tuple[Refusal, ...]:
    """Look for a Harbor task in a folder; the trainer reads all of them."""
    with unexpected_answers():
        listed = objects.list(prefix, most=MOST_FILES)
    if any(stat.key.endswith(f"/{CONFIG}") for stat in listed):
        return ()
    return (
        Refusal(
            field=f"{field}.uri",
            value=source.uri[:200],
            reason="DatasetNotFound",
            message=f"{source.uri} has no folder with a {CONFIG}.",
            remedy="Upload the tasks, each in a folder of its own, or correct the URI.",
        ),
    )


def _parse(
    objects: Objects, key: str, source: DatasetSource, begin: Begin, *, field: str
) -> tuple[Refusal, ...]:
    """Parse the beginning of a file as the trainer will parse all of it."""
    if key.endswith(".parquet"):
        return _parquet(objects, key, source, field=field)

    def consume(chunks: Iterator[bytes]) -> None:
        reader = begin()
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
    """Recognise a Parquet file by its first bytes; the trainer reads its columns."""

    def begin(chunks: Iterator[bytes]) -> bytes:
        return next(chunks, b"")[: len(PARQUET)]

    if objects.read_chunks(key, begin) == PARQUET:
        return ()
    return (
        Refusal(
            field=f"{field}.uri",
            value=source.uri[:200],
            reason="DatasetMalformed",
            message=f"{source.uri} is not a Parquet file.",
            remedy="Upload it again, or name a file of its type.",
        ),
    )


def _beginning(chunks: Iterator[bytes]) -> Iterator[RawRecord]:
    """Records of the first ``READ_BYTES``, without a record that is cut there."""
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
        for record in read_text(first()):
            if not (cut and record.problem):
                yield record
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
    """Refusals of folders in buckets; only pods ask the hub, and refuse with similar messages."""
    tokenizer = spec.model.tokenizer_uri
    refusals: list[Refusal] = []
    own = (TOKENIZER_FILE,) if tokenizer is None else ()
    if not spec.model.uri.startswith(HUB_SCHEME):
        refusals += _folder(stores, "uri", spec.model.uri, (*MODEL_FILES, *own, WEIGHTS))
    if tokenizer is not None and not tokenizer.startswith(HUB_SCHEME):
        refusals += _folder(stores, "tokenizerUri", tokenizer, (TOKENIZER_FILE,), what="Tokenizer")
    return tuple(refusals)


def _rollouts(spec: RLJobSpec, stores: Stores, *, namespace: str) -> tuple[Refusal, ...]:
    """The refusal of the earlier run whose rollouts are trained.

    Several namespaces may share stores: a run of another one is as if there were none.
    """
    if spec.data.rollouts is None:
        return ()
    try:
        with unexpected_answers():
            refusal = stored_groups.refusal(stores, spec.data.rollouts.run_id, namespace=namespace)
    except RLError as error:
        return (_refused(error, SECRET, "mongoUri", what="StateStore"),)
    return () if refusal is None else (refusal,)


def _sizes(spec: RLJobSpec, stores: Stores) -> dict[str, Any]:
    """The sizes in a model's config; empty for a config that is unusable, which trainers refuse."""
    if spec.model.uri.startswith(HUB_SCHEME):
        return {}
    bucket, key = split_uri(spec.model.uri)
    objects, name = stores.objects.of_bucket(bucket), f"{key.rstrip('/')}/config.json"
    try:
        with unexpected_answers():
            config = json.loads(objects.get(name, most=CONFIG_BYTES))
    except (RLError, ValueError, RecursionError):
        return {}
    return kept_fields(config) if isinstance(config, dict) else {}


def _folder(
    stores: Stores, name: str, uri: str, wanted: Sequence[str], *, what: str = "Model"
) -> tuple[Refusal, ...]:
    """The refusal of a folder of ``spec.model`` that lacks files, if it does."""
    field = f"spec.model.{name}"
    bucket, key = split_uri(uri)
    prefix = key.rstrip("/") + "/"
    try:
        with unexpected_answers():
            listed = stores.objects.of_bucket(bucket).list(prefix, most=MOST_FILES + 1)
        files = {item.key[len(prefix) :] for item in listed}
    except RLError as error:
        return (_refused(error, field, uri, what=what),)
    if len(files) > MOST_FILES:
        return (_no_folder(field, uri, what=what),)
    if not files:
        return (_refused(ObjectMissingError(uri), field, uri, what=what),)
    missing = [pattern for pattern in wanted if not fnmatch.filter(files, pattern)]
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


def _no_folder(field: str, uri: str, *, what: str) -> Refusal:
    return Refusal(
        field=field,
        value=uri[:200],
        reason=f"{what}Unreadable",
        message=f"More than {MOST_FILES} objects lie under this prefix: it is no model's folder.",
        remedy="Name the folder that holds the model's files and nothing else.",
    )


def _refused(error: RLError, field: str, value: str, *, what: str) -> Refusal:
    """The refusal of the field whose value led to a store's error."""
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
    cause = (
        error.what if isinstance(error, (AccessDeniedError, StoreUnavailableError)) else str(error)
    )
    message = f"{plain(cause)}."
    return Refusal(field=field, value=value[:200], reason=reason, message=message, remedy=remedy)
