"""What a store that was restored from a backup means for the run that goes on.

The document store, the bucket, or both may be older than what the run has seen. An attempt goes on
from what is left, and the run document says what was lost (``notices``); or the attempt is refused
and names what is missing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator, Sequence

from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.run import DurablePointer, Notice, PolicyPointer, Run
from rl_contracts.errors import ObjectMissingError, Refusal, RefusedError
from rl_contracts.stores.files.artifacts import MANIFEST
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint import retention, saved
from rl_trainer.checkpoint.retention import Folder
from rl_trainer.context.job import Job

log = logging.getLogger(__name__)

FIELD = "spec.training.checkpoint.resume"
KEPT_NOTICES = 8


def check(job: Job, run: Run) -> Run:
    """Compare the run document with the bucket before anything is loaded.

    Args:
        job: with the epoch that this trainer holds.
        run: its document when this attempt took the epoch.

    Returns:
        The run, whose ``durable`` names a checkpoint that exists; None: it starts at step 0.

    Raises:
        RefusedError: the run cannot go on without what is missing.
    """
    root = f"{job.prefix}checkpoints/"
    stored = retention.folders(job.stores.objects.list(root), root=root)
    complete = [folder for folder in stored if folder.complete]
    if complete and run.step == 0 and run.durable is None:
        raise RefusedError(_lost(job, run, complete[-1]))
    if run.trainers == 1:
        run = _name_earlier_run(job, run)
    run = _skip_used_versions(job, run, complete)
    if run.durable is None or _is_there(job.stores.objects, run.durable.prefix):
        return run
    return _fall_back(job, run, run.durable, complete)


def _name_earlier_run(job: Job, run: Run) -> Run:
    """Say so if an earlier job of this name left a run: this new job does not continue it.

    A job that is created again, e.g. from a backup of the API server without its UID, has another
    UID and so another run.
    """
    steps = job.stores.runs.unfinished_of(run.job, namespace=run.namespace)
    left = {name: step for name, step in steps.items() if step > 0 and name != run.id}
    if not left:
        return run
    name = max(left, key=lambda each: left[each])
    message = (
        f"The document store has a run of an earlier RLJob {run.job}, {name}, with {left[name]} "
        "steps. This job has another UID and begins a new run. To continue the earlier one, delete "
        f"this job and create it with spec.runId: {name}."
    )
    return note(job, run, "EarlierRunNotContinued", message)


def _skip_used_versions(job: Job, run: Run, checkpoints: Sequence[Folder]) -> Run:
    """Publish under no version that a policy has, and say so if the run document forgot steps.

    A restored document store does not know versions that the bucket or a living sampler holds.
    """
    root = f"{job.prefix}policies/"
    used = [folder.number for folder in retention.folders(job.stores.objects.list(root), root=root)]
    for sampler in job.stores.samplers.of_run(job.run):
        used += [sampler.version, sampler.staging_version]
    version, step = max(used, default=0), max((each.number for each in checkpoints), default=0)
    if version > run.last_version:
        job.stores.runs.skip_versions(job.run, epoch=job.epoch, through=version)
    if version <= run.last_version and step <= run.step:
        return run
    known = f"step {run.step} and policy version {run.last_version}"
    seen = f"policy version {version}" + (f" and a checkpoint of step {step}" if step else "")
    message = (
        f"The document store was restored from a backup: it knows {known}, but {seen} exist. What "
        f"was trained after step {run.step} is lost; training goes on from there."
    )
    return note(job, run, "DocumentStoreRestored", message)


def _fall_back(job: Job, run: Run, durable: DurablePointer, checkpoints: Sequence[Folder]) -> Run:
    """The run with the newest checkpoint from which its head can still be reached."""
    heads = dict(_heads(job, run))
    for folder in reversed(checkpoints):
        pointer = _pointer(job.stores.objects, folder, heads)
        if pointer is not None:
            break
    else:
        if 0 not in heads:
            raise RefusedError(_missing(job, run, durable, checkpoints, oldest=min(heads)))
        pointer = None
    where = f"the checkpoint of step {pointer.step}" if pointer else "the model that it began with"
    message = (
        f"The checkpoint of step {durable.step}, {job.stores.objects.uri(durable.prefix)}, is not "
        f"in the bucket. The run goes on from {where}: the batches up to step {run.step} are "
        "trained again, and none of these steps is lost."
    )
    run = note(job, run, "CheckpointMissing", message)
    if pointer is not None:
        job.stores.runs.make_durable(job.run, epoch=job.epoch, pointer=pointer)
    return run.model_copy(update={"durable": pointer})


def lost_policy(job: Job, run: Run, pointer: PolicyPointer) -> bool:
    """Whether the run's only policy is not in the bucket; it must then be published again."""
    if _is_there(job.stores.objects, pointer.prefix):
        return False
    message = (
        f"Policy version {pointer.version}, {job.stores.objects.uri(pointer.prefix)}, is not in "
        "the bucket: the bucket was restored from a backup. The run's model is published again."
    )
    note(job, run, "PolicyMissing", message)
    return True


def note(job: Job, run: Run, reason: str, message: str) -> Run:
    """Write to the run document what people must know of this attempt's start."""
    log.warning("%s: %s", reason, message)
    if any((notice.reason, notice.message) == (reason, message) for notice in run.notices):
        return run
    notice = Notice(time=job.stores.mongo.now(), reason=reason, message=message[:1024])
    notices = [*run.notices, notice][-KEPT_NOTICES:]
    job.stores.runs.note(job.run, epoch=job.epoch, notices=notices)
    return run.model_copy(update={"notices": notices})


def _heads(job: Job, run: Run) -> Iterator[tuple[int, str | None]]:
    """Steps from which the head can be reached by its batches, each with its last batch's id."""
    step, head = run.step, run.head_batch
    yield step, head
    while head is not None:
        batch = job.stores.batches.get([head]).get(head)
        if batch is None:
            return
        step, head = batch.step - 1, batch.parent
        yield step, head


def _pointer(
    objects: Objects, folder: Folder, heads: dict[int, str | None]
) -> DurablePointer | None:
    """A pointer to a checkpoint on the run's lineage; None for any other."""
    whole = _whole(objects, folder.prefix) if folder.number in heads else None
    if whole is None:
        return None
    manifest, digest = whole
    if saved.state(objects, folder.prefix, manifest).head != heads[folder.number]:
        return None  # of a time that a backup of the document store took back
    return DurablePointer(step=folder.number, prefix=folder.prefix, manifest_sha256=digest)


def _is_there(objects: Objects, prefix: str) -> bool:
    return _whole(objects, prefix) is not None


def _whole(objects: Objects, prefix: str) -> tuple[Manifest, str] | None:
    """A folder's manifest and its digest; None unless all files that it names are in the bucket."""
    try:
        encoded = objects.get(prefix + MANIFEST)
    except ObjectMissingError:
        return None
    digest = hashlib.sha256(encoded).hexdigest()
    manifest = Manifest.from_bytes(encoded, sha256=digest)
    present = {stored_object.key.removeprefix(prefix) for stored_object in objects.list(prefix)}
    if not present.issuperset(entry.name for entry in manifest.files):
        return None
    return manifest, digest


def _lost(job: Job, run: Run, newest: Folder) -> Refusal:
    uri = job.stores.objects.uri(newest.prefix)
    return Refusal(
        field=FIELD,
        value=f"run {run.id}"[:200],
        reason="RunLost",
        message=f"The document store has no step of run {run.id}, but the bucket has its "
        f"checkpoint of step {newest.number}, {uri}: the document store was restored from a backup "
        "that is older than the run's first step.",
        remedy="Restore the document store from a later backup. Or continue in a new job with "
        f"{FIELD}: {{mode: From, uri: {uri}}}. To start from the beginning, delete "
        f"{job.stores.objects.uri(job.prefix)}.",
    )


def _missing(
    job: Job,
    run: Run,
    durable: DurablePointer,
    checkpoints: Collection[Folder],
    *,
    oldest: int,
) -> Refusal:
    objects = job.stores.objects
    steps = ", ".join(str(folder.number) for folder in checkpoints) or "none"
    uris = [objects.uri(folder.prefix) for folder in checkpoints]
    new = (
        f"continue in a new job with {FIELD}: {{mode: From, uri: {uris[-1]}}}"
        if uris
        else "start a new job"
    )
    return Refusal(
        field=FIELD,
        value=objects.uri(durable.prefix)[:200],
        reason="CheckpointMissing",
        message=f"The run is at step {run.step}; its checkpoint of step {durable.step} is not in "
        f"the bucket, and the document store has batches from step {oldest + 1} on. Checkpoints in "
        f"the bucket: {steps}.",
        remedy=f"Restore the bucket from a backup that has this checkpoint. Or {new}.",
    )
