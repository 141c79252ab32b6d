"""Brings a job's data onto the local disk and parses it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError
from rl_contracts.documents.datasets.reading import SourceReader
from rl_contracts.documents.datasets.records import Compares
from rl_contracts.documents.datasets.text import read_text
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.data import HARBOR, Columns, Data, DatasetSource, Images
from rl_contracts.stores.objects import Objects, split_uri
from rl_trainer.context.bucket_refusals import refusing
from rl_trainer.data.dataset import Dataset, Split
from rl_trainer.data.harbor import HarborIntake, folder_of, raw_tasks
from rl_trainer.data.hub import HubAddress, HubClient
from rl_trainer.data.images import ImageIntake, beside_of
from rl_trainer.data.parquet import read_parquet
from rl_trainer.data.spool import Spool

log = logging.getLogger(__name__)

T = TypeVar("T")
CHUNK_BYTES = 1 << 20


class During(Protocol):
    """Makes a long call, e.g. with safe points while it lasts."""

    def __call__(self, call: Callable[[], T], /) -> T:
        """Return what it returns, and raise what it raises."""


def directly(call: Callable[[], T]) -> T:
    """Make a call without safe points."""
    return call()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where data come from and where they go to."""

    objects: Objects
    """Any bucket of the endpoint."""
    hub: HubClient
    folder: Path
    """For downloads and parsed examples."""
    images: ImageIntake | None = None
    """Stores images; None where records have none."""
    harbor: HarborIntake | None = None
    """Stores the tests of Harbor tasks; None where no source has such."""
    pinned: Mapping[str, str] = field(default_factory=dict)
    """Commits by name of a training source, for those that a run has begun with."""
    begun: bool = False
    """The run has steps, as ``SourceReader``."""
    recorded: Mapping[tuple[Split, str], str] = field(default_factory=dict)
    """Digest of the records by split and name of a source, for those that a run has begun with."""
    safe_point: Callable[[], None] = lambda: None
    """Called after each record, bad ones included; what it raises ends the reading."""
    during: During = directly
    """Makes the download of each file; it may raise as ``safe_point`` meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalFile:
    path: Path
    name: str
    """As its user knows it."""
    id_prefix: str = ""
    """As of ``SourceReader.read``."""
    ours: bool = True
    """May be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One source of the manifest."""

    source: DatasetSource
    split: Split
    field: str
    """Its path in the manifest."""


def fetch_datasets(
    data: Data, places: Places, *, compares: Compares = lambda scorer: True
) -> list[Dataset]:
    """All sources of a job, those of training first; ``compares`` as for ``parse_record``.

    Raises:
        RefusedError: a source is missing, forbidden, empty, or malformed (where).
        StoreUnavailableError: the bucket or the hub does not answer.
    """
    skip = data.on_bad_record == "Skip"
    return [
        _fetch(wanted, places, data.images, skip=skip, compares=compares)
        for wanted in _wanted(data)
    ]


def _wanted(data: Data) -> Iterator[_Wanted]:
    for split, sources in data.by_split.items():
        for number, source in enumerate(sources):
            yield _Wanted(source=source, split=split, field=f"spec.data.{split}[{number}]")


def _fetch(
    wanted: _Wanted, places: Places, limits: Images | None, *, skip: bool, compares: Compares
) -> Dataset:
    source = wanted.source
    read = partial(_read_source, wanted, places, limits, skip=skip, compares=compares)
    reader, revision, spool = read(keep_long=places.begun and not skip)
    recorded = places.recorded.get((wanted.split, source.name))
    if skip and reader.too_long and recorded not in (None, spool.sha256):
        # The run may have begun with an earlier release, which did not skip such records.
        reader, revision, spool = read(keep_long=True)
    reader.check_any()
    log.info("%s %s: %d records, %d skipped", wanted.split, source.name, len(spool), reader.skipped)
    return Dataset(
        source=source,
        split=wanted.split,
        examples=spool,
        skipped=reader.skipped,
        first_skipped=tuple(reader.first_skipped),
        scorers=reader.scorers,
        revision=revision,
        sha256=spool.sha256,
    )


def _read_source(
    wanted: _Wanted,
    places: Places,
    limits: Images | None,
    *,
    skip: bool,
    compares: Compares,
    keep_long: bool,
) -> tuple[SourceReader, str, Spool]:
    """What has read the source, its revision where it has one, and its examples."""
    source = wanted.source
    reader = SourceReader(
        source,
        field=wanted.field,
        skip=skip,
        compares=compares,
        images=None if places.images is None else limits,
        show=_showing(source, places, limits),
        begun=places.begun,
        keep_long=keep_long,
    )
    revision = ""
    if source.format == HARBOR:
        examples = _tasks(wanted, reader, places)
    else:
        revision, files = _files(wanted, places)
        examples = (
            example
            for file in files
            for example in _read(file, reader, places, source.columns, compares)
        )
    path = places.folder / f"{wanted.split}-{source.name}"
    path.unlink(missing_ok=True)
    return reader, revision, Spool(path, examples)


def _watched(raw: Iterator[RawRecord], places: Places) -> Iterator[RawRecord]:
    for record in raw:
        yield record
        places.safe_point()


def _showing(
    source: DatasetSource, places: Places, limits: Images | None
) -> Callable[[Example], Example]:
    """Stores the images of the source's examples, where they have any."""
    intake = places.images
    if limits is None or intake is None:
        return lambda example: example
    beside = beside_of(source.uri, places.objects, limits)
    return lambda example: intake.shown(example, beside)


def _tasks(wanted: _Wanted, reader: SourceReader, places: Places) -> Iterator[Example]:
    """The tasks of a folder; its files are read one after the other, while they are parsed."""
    uri = wanted.source.uri
    assert places.harbor is not None
    with refusing(f"{wanted.field}.uri", uri, missing="DatasetNotFound"):
        raw = raw_tasks(folder_of(uri, places.objects), intake=places.harbor)
        yield from reader.read(_watched(raw, places), file=uri)


def _read(
    file: _LocalFile, reader: SourceReader, places: Places, columns: Columns, compares: Compares
) -> Iterator[Example]:
    raw = _watched(_raw(file.path, columns, compares), places)
    yield from reader.read(raw, file=file.name, id_prefix=file.id_prefix)
    if file.ours:
        file.path.unlink()


def _raw(path: Path, columns: Columns, compares: Compares) -> Iterator[RawRecord]:
    if path.suffix == ".parquet":
        yield from read_parquet(path, columns=columns, compares=compares)
        return
    try:
        with path.open("rb") as file:
            yield from read_text(iter(lambda: file.read(CHUNK_BYTES), b""))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from error


def _files(wanted: _Wanted, places: Places) -> tuple[str, Iterator[_LocalFile]]:
    """The revision, where there is one, and the files, each fetched when its turn comes."""
    uri = wanted.source.uri
    if uri.startswith("hf://"):
        return _from_hub(wanted, places)
    return "", iter([_mounted(wanted) if uri.startswith("file://") else _stored(wanted, places)])


def _stored(wanted: _Wanted, places: Places) -> _LocalFile:
    uri = wanted.source.uri
    bucket, key = split_uri(uri)
    path = places.folder / f"download{Path(key).suffix}"
    with refusing(f"{wanted.field}.uri", uri, missing="DatasetNotFound"):
        objects = places.objects.of_bucket(bucket)
        places.during(lambda: objects.get_file(key, path))
    return _LocalFile(path=path, name=uri)


def _mounted(wanted: _Wanted) -> _LocalFile:
    uri = wanted.source.uri
    path = Path(unquote(uri.removeprefix("file://")))
    if not path.is_file():
        raise RefusedError(
            Refusal(
                field=f"{wanted.field}.uri",
                value=uri[:200],
                reason="DatasetNotFound",
                message=f"The trainer's pod has no file {path}.",
                remedy="Mount it there with spec.trainer.podTemplate, or correct the URI.",
            )
        )
    return _LocalFile(path=path, name=uri, ours=False)


def _from_hub(wanted: _Wanted, places: Places) -> tuple[str, Iterator[_LocalFile]]:
    source = wanted.source
    address = HubAddress.parse(source.uri)
    pinned = places.pinned.get(source.name, "") if wanted.split == "train" else ""
    commit, names = places.hub.files(
        address, split=source.split or wanted.split, field=wanted.field, commit=pinned
    )

    def fetched() -> Iterator[_LocalFile]:
        for name in names:
            download = partial(places.hub.download, address, name, commit=commit)
            path = places.during(
                partial(download, folder=places.folder / "hub", field=wanted.field)
            )
            yield _LocalFile(
                path=path,
                name=f"hf://{address.repo}@{commit[:12]}/{name}",
                # The first file has none: a run with one file must find its ids again.
                id_prefix="" if name == names[0] else f"{name} ",
            )

    return commit, fetched()
