"""The data of a run: fetched, checked against its samplers and its past, and recorded.

The run's document keeps a summary of each source, so that a later attempt reads the same records.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rl_contracts.documents.run import DatasetSummary, Run
from rl_contracts.errors import RefusedError
from rl_contracts.stores.files.harbor_tests import HarborTests
from rl_trainer.context.job import Job
from rl_trainer.data import step_numbers
from rl_trainer.data.dataset import Dataset, Split
from rl_trainer.data.earlier_run import read_groups
from rl_trainer.data.fetch import Places, fetch_datasets
from rl_trainer.data.harbor import HarborIntake
from rl_trainer.data.hub import HubClient
from rl_trainer.data.images import ImageIntake
from rl_trainer.data.same_data import changed
from rl_trainer.data.scorers import check_scorers
from rl_trainer.data.stream import train_order


def read_data(
    job: Job, run: Run, folder: Path, *, images: ImageIntake | None = None
) -> tuple[Job, list[Dataset]]:
    """Fetch, parse and check all data, and record its summaries in the run's document.

    ``images`` stores those that records name; None where they have none.

    Returns:
        The job with its number of steps filled in, and the datasets, those of training first.

    Raises:
        RefusedError: a source is missing, malformed or changed, or names an unknown scorer; or an
            option asks for more steps than a new run has.
        FencedOutError, StoreUnavailableError: as the stores raise them.
        TerminatedError: SIGTERM came; raised between two records, or while a file is downloaded.
    """
    section = job.spec.data
    places = Places(
        objects=job.stores.objects,
        hub=HubClient(
            section.hub.endpoint,
            token_file=job.hub_token_file,
            trusted_by=section.hub.trusted_publisher,
        ),
        folder=folder,
        images=images,
        harbor=_harbor(job),
        pinned=pinned(run),
        begun=run.step > 0,
        recorded=recorded(run),
        safe_point=job.heartbeat.check,
        during=job.heartbeat.during,
    )
    datasets = fetch_datasets(section, places, compares=job.spec.compares)
    if section.rollouts is not None:
        datasets.append(read_groups(job, run, folder, section.rollouts))
    samplers = job.stores.samplers.of_run(job.run)
    check_scorers(datasets, samplers=samplers)
    described = [_summary(dataset) for dataset in datasets]
    order = train_order(job.spec, [each for each in datasets if each.split == "train"])
    if run.step > 0 and (refusal := changed(run, described, order, section)):
        raise RefusedError(refusal)
    records = sum(summary.records for summary in described if summary.split == "train")
    for refusal in step_numbers.refusals(job.spec, records=records) if run.step == 0 else ():
        raise RefusedError(refusal)
    training = job.spec.training.for_records(records)
    job.stores.runs.record_datasets(
        job.run, epoch=job.epoch, datasets=described, order=order, steps=training.total_steps
    )
    return replace(job, spec=job.spec.model_copy(update={"training": training})), datasets


def _harbor(job: Job) -> HarborIntake | None:
    """The intake of Harbor tasks; None where the manifest has no program to play them."""
    program = job.spec.agent.program
    if program is None:
        return None
    return HarborIntake(program, HarborTests(job.stores.objects, run_prefix=job.prefix))


def pinned(run: Run) -> dict[str, str]:
    """Commit by name of each training source; a run that has steps must keep reading it."""
    if run.step == 0:
        return {}
    return {dataset.name: dataset.revision for dataset in run.datasets if dataset.split == "train"}


def recorded(run: Run) -> dict[tuple[Split, str], str]:
    """Digest of the records by split and name of each source; empty before the first step."""
    if run.step == 0:
        return {}
    return {(dataset.split, dataset.name): dataset.sha256 for dataset in run.datasets}


def _summary(dataset: Dataset) -> DatasetSummary:
    return DatasetSummary(
        split=dataset.split,
        name=dataset.source.name,
        uri=dataset.source.uri,
        records=len(dataset.examples),
        skipped=dataset.skipped,
        first_skipped=list(dataset.first_skipped),
        revision=dataset.revision,
        sha256=dataset.sha256,
    )
