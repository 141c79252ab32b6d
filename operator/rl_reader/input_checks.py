"""Checks a job's stores, model and data before its trainer reads them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.documents.datasets.reading import SourceReader
from rl_contracts.errors import AccessDeniedError, Refusal, RLError, StoreUnavailableError
from rl_contracts.spec.data import HARBOR, DatasetSource
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores import stored_groups
from rl_contracts.stores.clients.unexpected import UnexpectedAnswerError, unexpected_answers
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import split_uri
from rl_reader import dataset_checks, model_checks
from rl_reader.dataset_checks import Begin
from rl_reader.store_refusals import refused

SECRET = "spec.storage.secretName"
KEPT_FILES = 5000


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has come to."""

    refusals: tuple[Refusal, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)
    """Sizes of the model as in its ``config.json``; empty where they are not known."""
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The same of each model of ``spec.algorithm.other_models``, by the same fields."""


class InputChecks:
    """Checks inputs; an unchanged dataset is parsed once. Thread-safe."""

    def __init__(self, *, namespace: str) -> None:
        """Parse nothing yet; ``namespace``: of the jobs."""
        self._namespace = namespace
        self._parsed: dict[tuple[str, str, str], tuple[Refusal, ...]] = {}

    def check(self, spec: RLJobSpec, stores: Stores, *, begun: bool = False) -> Checked:
        """Check a job's inputs; if the stores do not answer, only their refusals are returned.

        ``begun``: the job's run may have steps, as ``SourceReader``.
        """
        down = _stores(stores)
        if down:
            return Checked(down)
        refusals = (
            *model_checks.refusals(spec, stores),
            *self._data(spec, stores, begun=begun),
            *_rollouts(spec, stores, namespace=self._namespace),
        )
        if refusals:
            return Checked(refusals)
        model = model_checks.sizes(spec.model.uri, stores)
        return Checked(model=model, others=model_checks.other_sizes(spec, stores))

    def _data(self, spec: RLJobSpec, stores: Stores, *, begun: bool) -> Iterator[Refusal]:
        skip = spec.data.on_bad_record == "Skip"
        images = spec.data.images
        rewards = spec.reward.model_dump_json()
        read_as = f"{skip} {begun} {spec.algorithm.objective} {rewards} {images}"
        for at, source in spec.data.by_field.items():
            begin = functools.partial(
                SourceReader,
                source,
                field=at,
                skip=skip,
                compares=spec.compares,
                images=images,
                begun=begun,
            )
            yield from self._dataset(source, stores, begin, field=at, read_as=read_as)

    def _dataset(
        self, source: DatasetSource, stores: Stores, begin: Begin, *, field: str, read_as: str
    ) -> tuple[Refusal, ...]:
        if not source.uri.startswith("s3://"):
            return ()  # only the trainer's pod can read it, and it refuses with the same message
        bucket, key = split_uri(source.uri)
        objects = stores.objects.of_bucket(bucket)
        try:
            with unexpected_answers():
                if source.format == HARBOR:
                    return dataset_checks.of_tasks(objects, key, source, field=field)
                stat = objects.stat(key)
                known = (field, source.model_dump_json(), f"{stat.etag} {read_as}")
                verdict = self._parsed.get(known)
                if verdict is None:
                    whole = stat.size_bytes <= dataset_checks.READ_BYTES
                    verdict = dataset_checks.of_file(
                        objects, key, source, begin, field=field, whole=whole
                    )
                    if len(self._parsed) >= KEPT_FILES:
                        self._parsed.clear()
                    self._parsed[known] = verdict
                return verdict
        except RLError as error:
            return (refused(error, f"{field}.uri", source.uri, what="Dataset"),)


def _stores(stores: Stores) -> tuple[Refusal, ...]:
    try:
        with unexpected_answers():
            stores.mongo.ensure_indexes()
    except (StoreUnavailableError, AccessDeniedError, UnexpectedAnswerError) as error:
        return (refused(error, SECRET, "mongoUri", what="StateStore"),)
    try:
        with unexpected_answers():
            stores.objects.check()
    except RLError as error:
        return (refused(error, SECRET, stores.objects.bucket, what="Bucket"),)
    return ()


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
        return (refused(error, SECRET, "mongoUri", what="StateStore"),)
    return () if refusal is None else (refusal,)
