"""A run as a whole, and its published policies."""

from __future__ import annotations

from collections import Counter

from pydantic_core import from_json

from rl_contracts import ids
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.errors import IntegrityError, ObjectMissingError, ObjectTooLargeError
from rl_contracts.queries.answers import (
    PoliciesAnswer,
    PolicyRow,
    ReportAnswer,
    SamplerRow,
    SummaryAnswer,
)
from rl_contracts.queries.kinds import (
    MOST_REPORT_BYTES,
    MOST_SAMPLERS,
    POLICIES_PER_PAGE,
    PoliciesQuery,
)
from rl_contracts.queries.lineage import File, find_ids
from rl_contracts.stores import overview, reports
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.connect import Stores

MOST_EVALUATIONS = 500
MOST_EPOCHS = 32
"""Trainers whose policies are looked for; a version exists in one of their epochs."""


def answer_summary(stores: Stores, run: Run) -> SummaryAnswer:
    """The run document with what is around it."""
    now = stores.mongo.now()
    samplers = living_samplers(stores.mongo, run.id)
    return SummaryAnswer(
        now=now,
        created_at=run.created_at,
        step=run.step,
        steps=run.steps,
        phase=run.phase,
        epoch=run.epoch,
        trainers=run.trainers,
        policy_version=run.policy.version if run.policy else 0,
        policy_step=run.policy.step if run.policy else 0,
        durable_step=run.durable.step if run.durable else 0,
        head_batch=run.head_batch,
        heartbeat_at=run.heartbeat_at,
        latest=run.latest,
        learning_signal=run.learning_signal,
        notices=run.notices,
        outcome=run.outcome,
        evaluations=_evaluations(stores, run),
        datasets=run.datasets,
        samplers=[_sampler(each, now) for each in samplers],
        samplers_died=run.samplers_ended.died,
        open_tasks=overview.backlog(stores.mongo, run.id),
        batches_below=run.deleted.batches_below,
    )


def living_samplers(mongo: Mongo, run: str) -> list[Sampler]:
    """Registrations of a run, by pool and pod; at most ``MOST_SAMPLERS``."""
    stored = mongo.call(
        f"reading samplers of run {run}",
        lambda: list(mongo.collection("samplers").find({"run": run}, limit=MOST_SAMPLERS)),
    )
    return sorted(map(Sampler.from_mongo, stored), key=lambda each: (each.pool, each.pod))


def _sampler(sampler: Sampler, now: float) -> SamplerRow:
    return SamplerRow(
        pool=sampler.pool,
        pod=sampler.pod,
        state=sampler.state,
        alive=sampler.is_alive(now),
        version=sampler.version,
        step=sampler.step,
        groups_running=sampler.groups_running,
        groups_done=sampler.groups_done,
        groups_failed=sampler.groups_failed,
        tokens_per_second=sampler.tokens_per_second,
        updates=sampler.updates,
        pause_seconds_last=sampler.pause_seconds_last,
        last_error=sampler.last_error[:500],
        unavailable={name[:100]: reason[:300] for name, reason in sampler.unavailable.items()},
    )


def _evaluations(stores: Stores, run: Run) -> list[EvaluationResult]:
    """The newest results, oldest first: each document names the one before."""
    if run.last_evaluation is None:
        return list(run.evaluations)
    documents: list[list[EvaluationResult]] = []
    name: str | None = run.last_evaluation
    while name is not None and sum(map(len, documents)) < MOST_EVALUATIONS:
        document = stores.evaluations.get([name]).get(name)
        if document is None:
            break
        documents.append(document.results)
        name = document.parent
    return [result for results in reversed(documents) for result in results]


def answer_policies(stores: Stores, run: Run, query: PoliciesQuery) -> PoliciesAnswer:
    """A page of versions, with the living samplers that hold each."""
    newest = run.last_version
    before = newest + 1 if query.before is None else min(query.before, newest + 1)
    versions = range(before - 1, max(0, before - 1 - POLICIES_PER_PAGE), -1)
    run_id = ids.RunId(run.id)
    epochs = _epochs(stores, run)
    wanted = [ids.policy_id(run_id, version, epoch) for version in versions for epoch in epochs]
    stored = find_ids(stores.mongo, "policies", wanted, [])
    now = stores.mongo.now()
    alive = [each for each in living_samplers(stores.mongo, run.id) if each.is_alive(now)]
    serving = Counter(each.version for each in alive)
    staging = Counter(each.staging_version for each in alive)
    records = sorted(map(PolicyRecord.from_mongo, stored.values()), key=lambda each: -each.version)
    rows = [
        PolicyRow(
            **each.model_dump(include=set(PolicyRow.model_fields) - {"kept"}),
            kept=each.marked_at is None,
            serving=serving[each.version],
            staging=staging[each.version],
        )
        for each in records
    ]
    more = bool(versions) and versions[-1] > 1
    return PoliciesAnswer(rows=rows, next_before=versions[-1] if more else None, newest=newest)


def answer_report(stores: Stores, run: Run) -> ReportAnswer:
    """The report of the newest trainer that wrote one.

    Raises:
        IntegrityError: it is no JSON object, or nested too deep for an answer.
    """
    objects, prefix = stores.objects, stores.run_prefix(run.id)
    try:
        key = reports.newest_key(objects, prefix, reports.REPORT)
        report = objects.get(key, most=MOST_REPORT_BYTES)
        return ReportAnswer(report=from_json(report))  # up to 200 deep
    except (ObjectMissingError, ObjectTooLargeError):
        return ReportAnswer(report=None)
    except ValueError as error:
        raise IntegrityError(f"{key} is not what a trainer writes: {error}") from error


def _epochs(stores: Stores, run: Run) -> list[int]:
    """Epochs of the run's trainers, the newest first."""
    known = {run.epoch}
    if run.policy is not None:
        known.add(run.policy.epoch)
    file = File.newest(stores, run.id)
    if file is not None and file.header.rows:
        known |= set(file.read(["epoch"], range(file.header.rows)).get("epoch", []))
    return sorted(known, reverse=True)[:MOST_EPOCHS]
