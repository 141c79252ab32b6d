"""Models in Hugging Face layout: config and tokenizer as they came, weights as trained.

All ranks write weights, each its own files; rank 0 writes the rest, the manifest last.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.model_files import INDEX_FILE
from rl_contracts.spec.training.training import Precision
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Origin, Uploaded
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint import hub_models, model_parts
from rl_trainer.checkpoint.model_card import model_card
from rl_trainer.checkpoint.model_parts import ModelPart
from rl_trainer.context.job import Job
from rl_trainer.context.uploads import PartFiles, WatchedFiles
from rl_trainer.distributed.rank_commands import ExportWeights, GatherAdapter
from rl_trainer.distributed.world import World
from rl_trainer.model import weights
from rl_trainer.model.policy import Policy

WEIGHT_FILES = (".safetensors", ".safetensors.index.json")
FINAL, EXPORTS = "final/", "exports/"
EPOCH_FOLDER = re.compile(rf"((?:{FINAL}|{EXPORTS}\d+/)(\d+)/)")
ADAPTER = "adapter/"
"""Below a model: what was trained of it, in PEFT's layout. Complete before the model is."""
CONFIG_DTYPES = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32"}


def export(
    job: Job,
    policy: Policy,
    *,
    base: Path,
    step: int,
    evaluations: Sequence[EvaluationResult],
    root: str = FINAL,
) -> str:
    """Write the present weights to ``final/<epoch>/`` under the run's prefix, or below ``root``.

    The final model goes to ``checkpoint.hubRepo`` as well, where that is set.

    Each epoch has a folder of its own: a trainer that was replaced without knowing it must not
    write over its successor's.

    Args:
        job: whose model.
        policy: with the weights.
        base: folder of the model that training started from.
        step: steps that the weights contain.
        evaluations: for the model card.
        root: below the run's prefix, with a slash at its end.

    Returns:
        The folder's ``s3://`` URI.
    """
    prefix = f"{job.prefix}{root}{job.epoch}/"
    objects, command = job.stores.objects, ExportWeights(prefix=prefix)
    parts = job.team.results(
        command,
        lambda: write_own(
            WatchedFiles(objects, job.heartbeat.advance),
            command,
            policy,
            precision=job.spec.training.precision,
            world=job.team.world,
        ),
    )
    _export_adapter(job, policy, step=step, root=root)
    with tempfile.TemporaryDirectory(dir=job.folder) as name:
        folder = Path(name)
        _write_beside(job, base, folder, step=step, evaluations=evaluations)
        index = model_parts.index(parts)
        if index is not None:
            (folder / INDEX_FILE).write_bytes(index)
        origin = Origin(kind="model", run=job.run, epoch=job.epoch, step=step)
        uploaded = _commit(objects, prefix, folder, parts, origin)
    if root == FINAL:
        hub_models.push(job, uploaded, step=step)
    return objects.uri(uploaded.prefix)


def write_own(
    files: PartFiles,
    command: ExportWeights,
    policy: Policy,
    *,
    precision: Precision,
    world: World,
) -> ModelPart:
    """Carry out the command on this rank; errors as of ``model_parts.write``."""
    own = weights.own_weights(policy, precision=precision, world=world)
    return model_parts.write(files, command.prefix, own, world=world)


def _write_beside(
    job: Job, base: Path, folder: Path, *, step: int, evaluations: Sequence[EvaluationResult]
) -> None:
    """Write all files of a model but its weights."""
    for path in base.iterdir():
        if not path.name.endswith(WEIGHT_FILES):
            shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / "config.json").read_text())
    config.pop("torch_dtype", None)  # the name before transformers 5
    config["dtype"] = CONFIG_DTYPES[job.spec.training.precision]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "README.md").write_text(model_card(job, step=step, evaluations=evaluations))


def _commit(
    objects: Objects, prefix: str, folder: Path, parts: Sequence[ModelPart], origin: Origin
) -> Uploaded:
    """Upload a folder beside the ranks' files, and make the model of both complete."""
    written = [file for part in parts for file in part.files]
    artifacts.check_uploaded(objects, prefix, written)
    beside = artifacts.put_files(objects, folder, prefix=prefix, origin=origin)
    files = sorted([*beside.files, *written], key=lambda file: file.name)
    tensors = [tensor for part in parts for tensor in part.tensors]
    described = beside.model_copy(update={"files": files, "tensors": tensors})
    return artifacts.commit(objects, prefix, described)


def _export_adapter(job: Job, policy: Policy, *, step: int, root: str) -> None:
    """Write a policy's adapters, in float32, to ``adapter/`` below its model."""
    if policy.adapter is None:
        return
    with tempfile.TemporaryDirectory(dir=job.folder) as name:
        folder = Path(name)
        taken = job.team.call(
            GatherAdapter(),
            lambda: weights.adapter(policy, precision="FP32", world=job.team.world),
        )
        weights.write_adapter(taken, policy.adapter, folder)
        artifacts.upload(
            job.stores.objects,
            folder,
            prefix=f"{job.prefix}{root}{job.epoch}/{ADAPTER}",
            origin=Origin(kind="model", run=job.run, epoch=job.epoch, step=step),
        )


def export_due(
    job: Job,
    policy: Policy,
    *,
    base: Path,
    step: int,
    evaluations: Sequence[EvaluationResult],
    trained_by: int | None = None,
) -> None:
    """Write ``exports/<step>/<epoch>/`` where ``checkpoint.exportEverySteps`` asks for the step.

    An attempt that resumes from the step's checkpoint or replays the step writes the export that
    the attempt before it could not, and does nothing where it is complete. An export by an earlier
    epoch than the one that trained the step is of steps that a restored document store has lost,
    and is replaced.

    Args:
        job: whose model.
        policy: with the weights.
        base: folder of the model that training started from.
        step: steps that the weights contain.
        evaluations: for the model card; later ones are left out.
        trained_by: epoch of the step's batch, where an earlier attempt trained it; None: this one
            did.
    """
    every = job.spec.training.checkpoint.export_every_steps
    if every is None or step % every or step == job.spec.training.total_steps:
        return
    root = f"{EXPORTS}{step:08d}/"
    keys = [stored_object.key for stored_object in job.stores.objects.list(job.prefix + root)]
    epochs = {key: int(key.removeprefix(job.prefix + root).partition("/")[0]) for key in keys}
    valid_from = job.epoch if trained_by is None else trained_by
    complete = [key for key in keys if _is_model_manifest(key) and epochs[key] >= valid_from]
    if trained_by is not None and complete:
        return
    for epoch in set(epochs.values()):  # of an attempt that ended while it wrote, or of lost steps
        if epoch < job.epoch:
            job.stores.objects.delete_prefix(f"{job.prefix}{root}{epoch}/")
    job.heartbeat.say(f"writing the model of step {step}")
    past = [evaluation for evaluation in evaluations if evaluation.step <= step]
    export(job, policy, base=base, step=step, evaluations=past, root=root)


def _is_model_manifest(key: str) -> bool:
    """Whether a key is the manifest of a whole model, not of the adapter beside it."""
    manifest = f"/{artifacts.MANIFEST}"
    return key.endswith(manifest) and not key.endswith(f"/{ADAPTER}{artifacts.MANIFEST}")


def delete_older(job: Job) -> None:
    """Delete what earlier epochs wrote of a final model that no outcome names, or of an export.

    An export that is complete stays. One that is not is of a trainer that ended, or was replaced,
    while it wrote.
    """
    objects = job.stores.objects
    keys = [
        stored_object.key.removeprefix(job.prefix)
        for root in (FINAL, EXPORTS)
        for stored_object in objects.list(job.prefix + root)
    ]
    complete = {key.removesuffix(artifacts.MANIFEST) for key in keys if _is_model_manifest(key)}
    for folder, epoch in {match.groups() for key in keys if (match := EPOCH_FOLDER.match(key))}:
        kept = folder in complete and folder.startswith(EXPORTS)
        if int(epoch) < job.epoch and not kept:
            objects.delete_prefix(job.prefix + folder)
