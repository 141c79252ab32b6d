"""Runs that train nothing: one policy is published once, and measured or sampled from.

The trainer's program does it, as one attempt of one pod: reading data, making tasks, proving that
each answer is of the version, fencing and reporting are the same as in training.
"""

from __future__ import annotations

from rl_contracts.documents.evaluation import EvaluationResult, labels
from rl_contracts.documents.run import Outcome, PolicyPointer, Run
from rl_contracts.stores import reports
from rl_trainer import startup
from rl_trainer.algorithm.groups import Limits
from rl_trainer.checkpoint import report, restored
from rl_trainer.context.job import Job, Progress
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.stream import TrainStream
from rl_trainer.model.learner import Learner
from rl_trainer.publish.publisher import Publisher
from rl_trainer.rollouts import evaluate, sampling
from rl_trainer.rollouts import results as results_of_run
from rl_trainer.rollouts.rank_work import RankWork


def measure(job: Job, run: Run) -> Outcome:
    """Evaluate the model, or resume an evaluation: ``algorithm.objective: Evaluation``.

    Args:
        job: with the epoch that this trainer holds.
        run: its document when this attempt took the epoch.

    Raises:
        RefusedError: an input cannot be used.
        TrainingFailedError: the attempt cannot go on.
        FencedOutError, StoreUnavailableError, TerminatedError: see there.
    """
    run = restored.check(job, run)
    job, datasets, learner, limits = startup.prepare(job, run)
    evaluate.retire_leftovers(job)
    pointer = _pinned(job, learner, run)
    progress = Progress(
        evaluations=results_of_run.of_run(job, run), last_evaluation=run.last_evaluation
    )
    work = RankWork(learner, job.stores.rollouts, limits)
    results = _measured(job, work, datasets, progress, pointer=pointer, limits=limits)
    _report(job, pointer, results)
    names = labels(results)
    accuracies = ", ".join(f"{names[result.series]} {result.accuracy:.3f}" for result in results)
    message = f"Policy {pointer.version} was evaluated: {accuracies}."
    return Outcome(kind="Succeeded", reason="Evaluated", message=message[:1024])


def fill(job: Job, run: Run) -> Outcome:
    """Sample rollouts of the training data, or resume: ``algorithm.objective: Sampling``.

    Each window of prompts is in the bucket before it is counted, under a name of its own; a window
    that is written again after a crash holds the same rollouts.

    Args, Raises: as ``measure``.
    """
    run = restored.check(job, run)
    job, datasets, learner, limits = startup.prepare(job, run)
    pointer = _pinned(job, learner, run)
    stream = TrainStream(run=job.run, spec=job.spec, datasets=datasets)
    versions = _of_same_weights(job, pointer)
    windows = sampling.Windows(job, stream, versions=versions, limits=limits)
    known = run.sampled
    sampling.check_size(known, size=job.spec.training.prompts_per_step)
    windows.retire_recorded(known.windows)
    while known.windows < job.spec.training.total_steps:
        window, dead = windows.sample(known.windows)
        groups = [group for group, _ in window]
        job.stores.objects.put(
            reports.samples_key(job.prefix, known.windows), sampling.lines(window)
        )
        known = sampling.added(known, groups, dead)
        job.stores.runs.record_sampled(job.run, epoch=job.epoch, sampled=known)
        windows.retire(groups, dead)
    _report(job, pointer, [])
    used = ", ".join(sorted(known.versions, key=int)) or pointer.version
    message = (
        f"{known.rollouts} rollouts of {known.prompts} prompts were sampled by policy {used}; "
        f"{known.given_up} prompts were given up."
    )
    return Outcome(kind="Succeeded", reason="Sampled", message=message)


def _pinned(job: Job, learner: Learner, run: Run) -> PolicyPointer:
    """The run's only policy: published now, unless an earlier attempt did."""
    startup.begin(job, learner, run)
    if run.policy is not None and not restored.lost_policy(job, run, run.policy):
        return run.policy
    job.heartbeat.say("publishing the policy")
    publisher = Publisher(job, learner.policy)
    job.heartbeat.watch(publisher.check)
    published = False
    try:
        pointer = publisher.require(step=0)
        published = True
    finally:
        publisher.close(wait=published)
    return pointer


def _of_same_weights(job: Job, pointer: PolicyPointer) -> set[int]:
    """The version, and earlier ones that were lost and published again with the same weights."""
    records = {record.version: record for record in job.stores.policies.of_run(job.run)}
    wanted = records[pointer.version].weights_sha256 if pointer.version in records else ""
    same = [name for name, record in records.items() if record.weights_sha256 == wanted]
    return {pointer.version, *(same if wanted else ())}


def _measured(
    job: Job,
    work: RankWork,
    datasets: list[Dataset],
    progress: Progress,
    *,
    pointer: PolicyPointer,
    limits: Limits,
) -> list[EvaluationResult]:
    """Results of all sources, recorded after each split."""
    job.figures.evaluated(progress.evaluations)
    for split in ("validation", "test"):
        wanted = [dataset for dataset in datasets if dataset.split == split]
        if wanted and not any(result.split == split for result in progress.evaluations):
            evaluate.evaluate(job, work, wanted, progress=progress, pointer=pointer, limits=limits)
            job.figures.evaluated(progress.evaluations)
    return progress.evaluations


def _report(job: Job, pointer: PolicyPointer, evaluations: list[EvaluationResult]) -> None:
    run = job.stores.runs.get(job.run)
    assert run is not None
    composed = report.compose(
        run,
        job.spec,
        evaluations=evaluations,
        policy_versions=pointer.version,
        final_model="",
    )
    report.write_report(job.stores.objects, job.prefix, composed, epoch=job.epoch)
