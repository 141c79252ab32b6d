"""Stores of documents that are written whole under deterministic ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Generic, TypeVar

from pymongo import ReplaceOne

from rl_contracts.documents.base import Document
from rl_contracts.documents.evaluation import Evaluation, EvaluationResult
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import Run
from rl_contracts.stores.clients.mongo import Mongo, Stored

D = TypeVar("D", bound=Document)
DOCUMENTS_PER_READ = 256
"""A rollout may have megabytes and a read has a deadline, so reads are split."""


class RecordStore(Generic[D]):
    """Documents of a kind; writing a document again under its id changes nothing."""

    def __init__(self, mongo: Mongo, collection: str, kind: type[D]) -> None:
        self._mongo = mongo
        self._name = collection
        self._documents = mongo.collection(collection)
        self._kind = kind

    def put(self, documents: Sequence[D]) -> None:
        """Write documents; documents with the same ids are replaced."""
        if documents:
            self._write([self._store(document) for document in documents])

    def get(self, ids: Sequence[str]) -> dict[str, D]:
        """Read documents by id; missing documents are left out."""
        return {document["_id"]: self._parse(document) for document in self._find_ids(ids)}

    def of_run(self, run: str) -> list[D]:
        """All documents of a run, sorted by id."""
        stored = self._mongo.call(
            f"listing {self._name} of run {run}", lambda: list(self._documents.find({"run": run}))
        )
        return sorted(
            (self._parse(document) for document in stored), key=lambda document: document.id
        )

    def delete(self, document: str) -> None:
        """Delete a document if it exists."""
        self._mongo.call(
            f"deleting {document}", lambda: self._documents.delete_one({"_id": document})
        )

    def delete_all(self, ids: Sequence[str]) -> int:
        """Delete documents by id; return how many existed."""
        wanted = list(ids)
        if not wanted:
            return 0
        return self._mongo.call(
            f"deleting {len(wanted)} {self._name}",
            lambda: self._documents.delete_many({"_id": {"$in": wanted}}).deleted_count,
        )

    def _find_ids(
        self, ids: Sequence[str], *, fields: Collection[str] | None = None
    ) -> Iterator[Stored]:
        """Read in chunks. No query for no ids: the embedded store would read everything.

        Args:
            ids: of the documents.
            fields: that are read; None: all.
        """
        for first in range(0, len(ids), DOCUMENTS_PER_READ):
            yield from self._find(list(ids[first : first + DOCUMENTS_PER_READ]), fields)

    def _find(self, ids: list[str], fields: Collection[str] | None) -> list[Stored]:
        wanted = None if fields is None else dict.fromkeys(fields, True)
        return self._mongo.call(
            f"reading {len(ids)} {self._name}",
            lambda: list(self._documents.find({"_id": {"$in": ids}}, wanted)),
        )

    def _write(self, stored: Sequence[Stored]) -> None:
        writes = [
            ReplaceOne({"_id": document["_id"]}, document, upsert=True) for document in stored
        ]
        self._mongo.call(
            f"writing {len(writes)} {self._name}", lambda: self._documents.bulk_write(writes)
        )

    def _store(self, document: D) -> Stored:
        return document.to_mongo()

    def _parse(self, stored: Stored) -> D:
        return self._kind.from_mongo(stored)


class PolicyStore(RecordStore[PolicyRecord]):
    """Catalogue of published policies of the runs in a database."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, "policies", PolicyRecord)


class EvaluationStore(RecordStore[Evaluation]):
    """Evaluations of the runs in a database."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, "evaluations", Evaluation)

    def lineage(self, run: Run) -> list[EvaluationResult]:
        """All results that lead to the run's last evaluation, oldest first.

        What a replaced trainer wrote without the run naming it is left out.

        Raises:
            LookupError: a document is missing.
        """
        if run.last_evaluation is None:
            return list(run.evaluations)
        known = {document.id: document for document in self.of_run(run.id)}
        chain: list[Evaluation] = []
        name: str | None = run.last_evaluation
        while name is not None:
            if name not in known:
                raise LookupError(f"evaluation {name} of run {run.id} is missing")
            chain.append(known[name])
            name = chain[-1].parent
        return [result for evaluation in reversed(chain) for result in evaluation.results]
