"""Startup of an attempt: fetch data, load models, restore the state that ``resume`` names."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rl_contracts.documents.run import Resolved, Run
from rl_contracts.errors import IntegrityError, Refusal, RefusedError
from rl_contracts.stores.files.artifacts import MANIFEST
from rl_contracts.stores.files.images import ImageStore
from rl_contracts.stores.files.model_folder import BaseLocations
from rl_contracts.stores.objects import split_uri
from rl_trainer import downloads, inputs, model_digests
from rl_trainer.algorithm.groups import Limits
from rl_trainer.checkpoint import base_model, checkpointer
from rl_trainer.context.bucket_refusals import refusing
from rl_trainer.context.job import Job, Progress
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.earlier_run import check_vocabulary
from rl_trainer.data.images import ImageIntake, intake_for
from rl_trainer.data.run_datasets import read_data
from rl_trainer.distributed.rank_commands import FetchModels, LoadModels
from rl_trainer.model.learner import Learner

log = logging.getLogger(__name__)

MODE, URI = "spec.training.checkpoint.resume.mode", "spec.training.checkpoint.resume.uri"


def prepare(job: Job, run: Run) -> tuple[Job, list[Dataset], Learner, Limits]:
    """Fetch data and models, on all ranks.

    Returns:
        The job with its number of steps filled in, the datasets, the learner, and the limits of a
        usable rollout.

    Raises:
        RefusedError: an input cannot be used.
        FencedOutError, StoreUnavailableError, TerminatedError: see there.
    """
    folder = job.folder / "data"
    folder.mkdir()
    job.heartbeat.say("fetching data and model")
    base = base_model.places(job, run) if job.spec.data.images else None
    with _intake(job, base) as images:
        job, datasets = read_data(job, run, folder, images=images)
    base = base or base_model.places(job, run)
    job = base_model.pinned(job, base)
    learner, limits = _models(job, base)
    _check_vocabulary(job, run)
    model_digests.check(job, run, commit=base.model.commit)
    if learner.trains:
        job.stores.runs.record_resolved(job.run, epoch=job.epoch, resolved=_resolved(learner))
    return job, datasets, learner, limits


def _models(job: Job, base: BaseLocations) -> tuple[Learner, Limits]:
    """Fetch the models on every rank, and then load them on all ranks together."""
    objects, world, manifest = job.stores.objects, job.team.world, job.spec
    spec = manifest.model_dump_json(by_alias=True)
    job.team.call(
        FetchModels(spec=spec, base=base),
        lambda: downloads.fetch(objects, manifest, base=base, folder=job.folder, world=world),
    )
    return job.team.call(
        LoadModels(spec=spec, prefix=job.prefix),
        lambda: inputs.learner(
            manifest,
            folder=job.folder,
            world=world,
            clock=job.clock,
            images=image_store(job),
        ),
    )


def _check_vocabulary(job: Job, run: Run) -> None:
    """Record which tokens the model has; an earlier run's rollouts must have the same."""
    sha256 = base_model.vocabulary(job.folder / downloads.BASE)
    check_vocabulary(job, sha256)
    if run.vocabulary != sha256:
        job.stores.runs.record_vocabulary(job.run, epoch=job.epoch, sha256=sha256)


def image_store(job: Job) -> ImageStore:
    """The images of the run."""
    return ImageStore(job.stores.objects, run_prefix=job.prefix)


@contextmanager
def _intake(job: Job, base: BaseLocations | None) -> Iterator[ImageIntake | None]:
    """What stores images while data are read; None where records have none.

    Its model is known before its data then: how large an image is depends on it.
    """
    limits, objects = job.spec.data.images, job.stores.objects
    if base is None or limits is None:
        yield None
        return

    def before_each(count: int) -> None:
        job.heartbeat.check()
        job.heartbeat.say(f"fetching data: {count} images are stored")

    intake = intake_for(
        limits, base.model, objects=objects, store=image_store(job), before_each=before_each
    )
    try:
        yield intake
    finally:
        intake.close()


def _resolved(learner: Learner) -> Resolved:
    return Resolved(
        max_tokens_per_microbatch=learner.training.microbatch_tokens,
        gradient_checkpointing=bool(learner.training.gradient_checkpointing),
        processes=learner.world.size,
        mesh=str(learner.world.sizes),
    )


def begin(job: Job, learner: Learner, run: Run) -> Progress:
    """Load the learner with the state before the first batch that is to be trained (again).

    Under ``Auto`` that is the run's last checkpoint, or none. ``Never`` refuses to resume:
    it is for a run that must not depend on an earlier attempt. ``From`` takes weights, moments,
    critic and reference from another run's checkpoint, and what changes by itself in both runs.
    Steps and data start at 0, and once this run has a checkpoint of its own it resumes from that.

    Raises:
        RefusedError: the mode forbids it, or the checkpoint cannot be used.
        IntegrityError, ObjectMissingError: see ``checkpoint.restore``.
    """
    section = job.spec.training.checkpoint.resume
    if section.mode == "Never" and run.step > 0:
        raise RefusedError(_has_steps(run))
    if run.durable is not None:
        job.heartbeat.say(f"loading the checkpoint of step {run.durable.step}")
        return checkpointer.restore(job, learner, run.durable)
    if section.uri is not None:
        job.heartbeat.say("loading another run's checkpoint")
        _take_over(job, learner, section.uri)
    return Progress()


def _take_over(job: Job, learner: Learner, uri: str) -> None:
    bucket_name, key = split_uri(uri)
    prefix = key.rstrip("/") + "/"
    bucket = job.stores.objects.of_bucket(bucket_name)
    with refusing(URI, uri, missing="CheckpointNotFound"):
        digest = hashlib.sha256(bucket.get(prefix + MANIFEST)).hexdigest()
        try:
            checkpoint = checkpointer.take(
                job, learner, bucket, prefix=prefix, manifest_sha256=digest
            )
        except IntegrityError as error:
            raise RefusedError(_unusable(uri, str(error), trains=learner.trains)) from error
    log.info("starting from the state of step %d in %s", checkpoint.state.step, uri)


def _has_steps(run: Run) -> Refusal:
    return Refusal(
        field=MODE,
        value="Never",
        reason="RunHasSteps",
        message=f"Run {run.id} has {run.step} steps of an earlier attempt.",
        remedy="Choose mode Auto to resume from them, or another spec.runId.",
    )


def _unusable(uri: str, why: str, *, trains: bool) -> Refusal:
    wanted = (
        "Name a checkpoint of a run with this model and algorithm."
        if trains
        else "Name a checkpoint of a run that trained this model, or name its final model or an "
        "export in spec.model.uri; of a run with training.lora only those hold all weights."
    )
    return Refusal(
        field=URI,
        value=uri[:200],
        reason="CheckpointUnusable",
        message=f"It cannot be used: {why[:300]}.",
        remedy=wanted,
    )
