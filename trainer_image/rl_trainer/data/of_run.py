"""The data of a run: fetched, checked against its samplers and its past, and written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rl_contracts.documents.run import Run
from rl_trainer.context.job import Job
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.fetch import Places, fetch_datasets
from rl_trainer.data.hub import HubClient
from rl_trainer.data.scorers import check_scorers
from rl_trainer.data.summary import pinned, summaries


def read_data(job: Job, run: Run, folder: Path) -> tuple[Job, list[Dataset]]:
    """Fetch, parse and check all data, and write down what was found; the job knows its steps."""
    section = job.spec.data
    places = Places(
        objects=job.stores.objects,
        hub=HubClient(section.hub.endpoint, token_file=job.hub_token_file),
        folder=folder,
        pinned=pinned(run),
    )
    datasets = fetch_datasets(section, places)
    samplers = job.stores.samplers.of_run(job.run)
    check_scorers(datasets, samplers=samplers)
    described = summaries(datasets, started=run)
    records = sum(summary.records for summary in described if summary.split == "train")
    training = job.spec.training.for_records(records)
    job.stores.runs.record_datasets(
        job.run, epoch=job.epoch, datasets=described, steps=training.total_steps
    )
    return replace(job, spec=job.spec.model_copy(update={"training": training})), datasets
