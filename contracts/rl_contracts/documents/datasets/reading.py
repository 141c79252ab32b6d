"""Reads a source's records as examples; bad records are rejected or skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.datasets.raw import RawRecord, UnreadableError
from rl_contracts.documents.datasets.records import (
    BadRecordError,
    Compares,
    named,
    parse_record,
)
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.data import DatasetSource, Images

log = logging.getLogger(__name__)

SHOWN_SKIPPED = 3
MAX_TEXT_BYTES = 15 << 20
"""Of a record: its task fits, with what else it has, into a document of 16 MiB, and into a message
of as much to the user's code, where a line break has two bytes."""
UNNAMED_ID = "; field 'id' is read as the id: name another, which is unique, in columns.id"
REMEDY = "Fix the file, or set columns to the column names that it uses"


class SourceReader:
    """Reads a source file by file and counts good and skipped records."""

    def __init__(
        self,
        source: DatasetSource,
        *,
        field: str,
        skip: bool = False,
        compares: Compares = lambda scorer: True,
        images: Images | None = None,
        show: Callable[[Example], Example] = lambda example: example,
        begun: bool = False,
        keep_long: bool = False,
    ) -> None:
        """Start with no records read.

        Args:
            source: the source in the manifest.
            field: path of the source in the manifest, e.g. ``spec.data.train[0]``.
            skip: skip bad records instead of raising RefusedError.
            compares: as ``parse_record``.
            images: as ``parse_record``.
            show: stores the images of an example, and raises BadRecordError for a bad one.
            begun: the run has steps, and its ``data`` cannot be edited any more: a named column
                that no record has is only logged.
            keep_long: a record that is too long is only logged: an earlier release read it.
        """
        self._source, self._field, self._skip = source, field, skip
        self._compares, self._images, self._show = compares, images, show
        self._begun, self._keep_long = begun, keep_long
        self._seen: set[str] = set()
        self._unseen = named(source.columns)
        """Columns that the manifest names and no record has had, as ``named``."""
        self._columns: Sequence[str] = ()
        """Of the first record."""
        self.too_long = 0
        """Records of more than ``MAX_TEXT_BYTES`` so far, whether kept or not."""
        self.skipped = 0
        self.first_skipped: list[str] = []
        """Place and problem of the first skipped records."""
        self.scorers: dict[str, str] = {}
        """Scorers that records name, with the place where each is named first."""

    @property
    def records(self) -> int:
        """Number of good records so far."""
        return len(self._seen)

    def read(
        self, raw: Iterable[RawRecord], *, file: str, id_prefix: str = ""
    ) -> Iterator[Example]:
        """Yield the examples of a file.

        Args:
            raw: the file's records.
            file: name of the file in messages, e.g. its URI.
            id_prefix: stands before the place where that becomes the id of a record; places of two
                files may be the same.

        Raises:
            RefusedError: the file cannot be read, or a record is bad and is not to be skipped.
        """
        try:
            for record in raw:
                example = self._example(record, file, id_prefix)
                if example is not None:
                    yield example
        except UnreadableError as error:
            raise self._refused(f"{file}: {error}") from error

    def check_any(self, *, whole: bool = True) -> None:
        """Raise RefusedError when no good record was read, or no record has a named column.

        In a run that has begun, a column that no record has is only logged.

        Args:
            whole: all records were read, so that none can still have the column.
        """
        if self.records:
            if whole:
                self._check_columns()
            return
        problem = "no record"
        if self.skipped:
            problem = (
                f"no usable record; {self.skipped} are bad, the first: {self.first_skipped[0]}"
            )
        raise self._refused(f"{self._source.uri} holds {problem}")

    def _check_columns(self) -> None:
        if not self._unseen:
            return
        column, field = next(iter(self._unseen.items()))
        there = ", ".join(self._columns).encode(errors="backslashreplace").decode()
        refusal = Refusal(
            field=f"{self._field}.columns.{field}",
            value=column,
            reason="DatasetMalformed",
            message=f"No record of {self._source.uri} has a field {column!r}; "
            f"the first has {there:.200}.",
            remedy="Correct the name, or remove it from columns.",
        )
        if not self._begun:
            raise RefusedError(refusal)
        log.warning("%s: %s The run has begun, and goes on.", refusal.field, refusal.message)

    def _check_size(self, example: Example, where: str) -> None:
        if example.text_bytes <= MAX_TEXT_BYTES:
            return
        problem = f"has {example.text_bytes} bytes of text as JSON, more than {MAX_TEXT_BYTES}"
        self.too_long += 1
        if not self._keep_long:
            raise BadRecordError(problem)
        log.warning("%s %s. The run has begun, and goes on.", where, problem)

    def _note_columns(self, raw: RawRecord) -> None:
        if not isinstance(raw.value, Mapping):
            return
        there = raw.columns or list(map(str, raw.value))
        self._columns = self._columns or there
        for column in self._unseen.keys() & set(there):
            del self._unseen[column]

    def _example(self, raw: RawRecord, file: str, id_prefix: str) -> Example | None:
        where = f"{file} {raw.place}"
        if self._unseen:
            self._note_columns(raw)
        try:
            if raw.problem:
                raise BadRecordError(raw.problem)
            parsed = parse_record(
                raw.value,
                columns=self._source.columns,
                place=f"{id_prefix}{raw.place}",
                compares=self._compares,
                images=self._images,
            )
            self._check_size(parsed, where)
            example = self._show(replace(parsed, harbor=raw.harbor))
        except BadRecordError as error:
            named = str(error).startswith("field ")
            self._bad(f"{where}: {error}" if named else f"{where} {error}")
            return None
        if example.id in self._seen:
            hint = "" if self._source.columns.id else UNNAMED_ID
            self._bad(f"{where}: id {example.id!r} occurs twice{hint}")
            return None
        self._seen.add(example.id)
        if example.scorer:
            self.scorers.setdefault(example.scorer, where)
        return example

    def _bad(self, problem: str) -> None:
        if not self._skip:
            raise self._refused(problem)
        self.skipped += 1
        if len(self.first_skipped) < SHOWN_SKIPPED:
            self.first_skipped.append(problem[:300])

    def _refused(self, problem: str) -> RefusedError:
        skippable = "" if self._skip else ", or set spec.data.onBadRecord to Skip"
        return RefusedError(
            Refusal(
                field=f"{self._field}.uri",
                value=self._source.uri[:200],
                reason="DatasetMalformed",
                message=f"{problem}.",
                remedy=f"{REMEDY}{skippable}.",
            )
        )
