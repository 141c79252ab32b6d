"""Checks the beginning of a dataset in the way in which the trainer will read all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rl_contracts.documents.datasets.harbor import CONFIG
from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError
from rl_contracts.documents.datasets.reading import SourceReader
from rl_contracts.documents.datasets.text import read_text
from rl_contracts.errors import ObjectMissingError, Refusal, RefusedError
from rl_contracts.spec.data import DatasetSource
from rl_contracts.stores.objects import Objects

READ_BYTES = 64 << 20
"""Most bytes that are read of each dataset; the trainer reads all of it."""
PARQUET = b"PAR1"
MOST_ENTRIES, MOST_FOLDERS = 10_000, 200
"""Of a folder of tasks: entries that are listed, and folders that are looked into; the trainer
reads all."""

Begin = Callable[[], SourceReader]
"""Begins to read a source from its first record."""


def of_tasks(
    objects: Objects, prefix: str, source: DatasetSource, *, field: str
) -> tuple[Refusal, ...]:
    """Look for a Harbor task in a folder, unless that has more entries than are looked at."""
    entries = objects.entries(prefix, most=MOST_ENTRIES)
    folders = [entry for entry in entries if entry.endswith("/")]
    whole = len(entries) < MOST_ENTRIES and len(folders) <= MOST_FOLDERS
    places = ("", *folders[:MOST_FOLDERS])
    if not whole or any(_exists(objects, f"{prefix}{place}{CONFIG}") for place in places):
        return ()
    return _unusable(
        source,
        field,
        reason="DatasetNotFound",
        message=f"has no folder with a {CONFIG}",
        remedy="Upload the tasks, each in a folder of its own, or correct the URI.",
    )


def _exists(objects: Objects, key: str) -> bool:
    try:
        objects.stat(key)
    except ObjectMissingError:
        return False
    return True


def of_file(
    objects: Objects, key: str, source: DatasetSource, begin: Begin, *, field: str, whole: bool
) -> tuple[Refusal, ...]:
    """Parse the beginning of a file, or the whole of it, as the trainer will parse all of it."""
    if key.endswith(".parquet"):
        return _parquet(objects, key, source, field=field)

    def consume(chunks: Iterator[bytes]) -> None:
        reader = begin()
        for _ in reader.read(beginning(chunks), file=source.uri):
            pass
        reader.check_any(whole=whole)

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
    return _unusable(
        source,
        field,
        reason="DatasetMalformed",
        message="is not a Parquet file",
        remedy="Upload it again, or name a file of its type.",
    )


def _unusable(
    source: DatasetSource, field: str, *, reason: str, message: str, remedy: str
) -> tuple[Refusal, ...]:
    """The refusal of a source; ``message`` says what its URI leads to."""
    return (
        Refusal(
            field=f"{field}.uri",
            value=source.uri[:200],
            reason=reason,
            message=f"{source.uri} {message}.",
            remedy=remedy,
        ),
    )


def beginning(chunks: Iterator[bytes]) -> Iterator[RawRecord]:
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
