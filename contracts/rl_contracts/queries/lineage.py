"""Where a run's steps are: ids of their batches, without a scan.

A batch's id names its step and epoch. The epochs of all but the newest steps are a column of
``metrics.columns``; those of the newest follow from the run's head, each batch naming its parent.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts import ids
from rl_contracts.documents import metric_columns
from rl_contracts.documents.metric_columns import ColumnsHeader
from rl_contracts.documents.run import Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import ObjectMissingError, ObjectTooLargeError
from rl_contracts.stores import reports
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.connect import Stores

PER_READ = 256
MOST_TAIL = 4096
"""Newest steps whose batches are followed from the head."""
FIRST_READ = 64 << 10
RANGE_BYTES = 64 << 20
"""Of a file of columns that is read at once: all columns of some 200,000 steps."""


def find_ids(
    mongo: Mongo, collection: str, wanted: Sequence[str], fields: Iterable[str]
) -> dict[str, Stored]:
    """Some fields of documents by id, in reads of ``PER_READ``; missing ones are left out."""
    projection = dict.fromkeys(fields, 1)
    documents: dict[str, Stored] = {}
    for first in range(0, len(wanted), PER_READ):
        query = {"_id": {"$in": list(wanted[first : first + PER_READ])}}
        stored = mongo.call(
            f"reading {collection}",
            lambda: list(mongo.collection(collection).find(query, projection or None)),  # noqa: B023
        )
        documents |= {str(each["_id"]): each for each in stored}
    return documents


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A run's ``metrics.columns``."""

    stores: Stores
    key: str
    header: ColumnsHeader
    header_bytes: int

    @classmethod
    def newest(cls, stores: Stores, run: str) -> File | None:
        """The file of the newest epoch that wrote one."""
        objects, prefix = stores.objects, stores.run_prefix(run)
        try:
            key = reports.newest_key(objects, prefix, reports.COLUMNS)
        except ObjectMissingError:
            return None
        start = _range(stores, key, 0, metric_columns.START_BYTES)
        size = metric_columns.header_bytes(start)
        text = _range(stores, key, metric_columns.START_BYTES, size)
        header = metric_columns.parse_header(text)
        return cls(stores=stores, key=key, header=header, header_bytes=size)

    def read(self, names: Iterable[str], rows: range) -> dict[str, array[Any]]:
        """Some rows of some columns; neighbouring columns come with one request."""
        wanted = [column for column in self.header.columns if column.name in set(names)]
        whole = len(rows) == self.header.rows
        if whole and len(wanted) > 1:
            return self._read_whole([column.name for column in wanted])
        read = {}
        for column in wanted:
            offset, size = self.header.place(column.name, header_bytes=self.header_bytes)
            if size == 0:
                read[column.name] = self.header.items(column, b"")[rows.start : rows.stop]
                continue
            item = metric_columns.ITEM_BYTES[column.kind]
            packed = _range(self.stores, self.key, offset + item * rows.start, item * len(rows))
            read[column.name] = metric_columns.unpack(column.kind, packed)
        return read

    def _read_whole(self, names: Sequence[str]) -> dict[str, array[Any]]:
        places = {name: self.header.place(name, header_bytes=self.header_bytes) for name in names}
        begin = min(offset for offset, _ in places.values())
        end = max(offset + size for offset, size in places.values())
        content = memoryview(_range(self.stores, self.key, begin, end - begin))
        columns = {column.name: column for column in self.header.columns}
        return {
            name: self.header.items(
                columns[name], bytes(content[offset - begin : offset - begin + size])
            )
            for name, (offset, size) in places.items()
        }


def _range(stores: Stores, key: str, offset: int, size: int) -> bytes:
    if size > RANGE_BYTES:
        raise ObjectTooLargeError(stores.objects.uri(key), size_bytes=size, most=RANGE_BYTES)
    received = bytearray()
    stores.objects.read_range(key, offset=offset, size_bytes=size, consume=received.extend)
    return bytes(received)


@dataclass(slots=True)
class Lineage:
    """A run's steps; reads what it is asked for once."""

    stores: Stores
    run: Run
    file: File | None
    _tail: dict[int, str] | None = field(default=None)

    @classmethod
    def of(cls, stores: Stores, run: Run) -> Lineage:
        """The lineage that leads to the run's head."""
        return cls(stores, run, File.newest(stores, run.id))

    @property
    def filed(self) -> int:
        """Last step that the file holds and that the run has committed; 0 without a file."""
        header = self.file.header if self.file else None
        return min(header.last, self.run.step) if header and header.rows else 0

    def rows(self, first: int, last: int) -> range:
        """Rows of the file that hold the steps [first, last]."""
        if self.file is None or not self.file.header.rows:
            return range(0)
        header = self.file.header
        if header.contiguous:
            start = max(0, first - header.first)
            stop = min(last, self.filed) - header.first + 1
            return range(start, max(start, min(stop, header.rows)))
        steps = self.file.read(["step"], range(header.rows))["step"]
        inside = [row for row, step in enumerate(steps) if first <= step <= min(last, self.filed)]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    def batches(self, first: int, last: int) -> dict[int, str]:
        """Ids of the batches of the steps [first, last]; those that are unknown are left out."""
        names: dict[int, str] = {}
        rows = self.rows(first, last)
        if rows and self.file is not None:
            read = self.file.read(["step", "epoch"], rows)
            run = ids.RunId(self.run.id)
            for step, epoch in zip(read["step"], read["epoch"], strict=True):
                names[step] = ids.batch_id(run, step, epoch)
        if last > self.filed:
            tail = self.tail()
            names |= {step: tail[step] for step in range(first, last + 1) if step in tail}
        return names

    def tail(self) -> dict[int, str]:
        """Ids of the batches that are newer than the file."""
        if self._tail is None:
            oldest = max(self.filed, self.run.step - MOST_TAIL)
            self._tail = _walk(self.stores.mongo, self.run, down_to=oldest)
        return self._tail

    def tail_metrics(self, first: int, last: int) -> list[StepMetrics]:
        """Metrics of the steps in [first, last] that are newer than the file, in order."""
        if last <= self.filed:
            return []
        wanted = [batch for step, batch in self.tail().items() if first <= step <= last]
        stored = find_ids(self.stores.mongo, "batches", wanted, ["metrics"])
        known = {
            metrics.step: metrics
            for each in stored.values()
            if each.get("metrics")
            for metrics in [StepMetrics.model_validate(each["metrics"])]
        }
        latest = self.run.latest
        if latest is not None and max(first, self.filed + 1) <= latest.step <= last:
            known[latest.step] = latest
        return [known[step] for step in sorted(known)]


def _walk(mongo: Mongo, run: Run, *, down_to: int) -> dict[int, str]:
    """Batches from the head to the step above ``down_to``, or to where they are deleted.

    A chunk of ids is guessed from the epoch of its newest batch; one more read for each trainer.
    """
    names: dict[int, str] = {}
    head, step = run.head_batch, run.step
    while head is not None and step > down_to:
        epoch = ids.batch_epoch(head)
        steps = range(step, max(down_to, step - PER_READ), -1)
        guessed = [ids.batch_id(ids.RunId(run.id), each, epoch) for each in steps]
        stored = find_ids(mongo, "batches", guessed, ["parent"])
        before = step
        while head in stored and step > down_to:
            names[step] = head
            head = stored[head].get("parent")
            step -= 1
        if step == before:
            break
    return names
