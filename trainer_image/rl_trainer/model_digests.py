"""A run must go on with the models that it began with.

Of a hub's model the commit says so (``base_model``). A folder in a bucket may be replaced by
another model of the same shape, so that only the digest of its bytes tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rl_contracts.documents.run import Run
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.hub.model_import import MODEL_FIELD
from rl_contracts.model_files import weight_files, weights_digest
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.context.job import Job
from rl_trainer.downloads import BASE, CRITIC, FOLDERS, TEACHER

FIELDS = {BASE: MODEL_FIELD} | {name: field for field, name in FOLDERS.items()}
"""What names each model in the manifest, by its folder beside the trainer's others."""


def check(job: Job, run: Run, *, commit: str) -> None:
    """Compare the models' digests with those of the run, and record new ones; for rank 0 alone.

    Args:
        job: whose models lie in its folder.
        run: before this attempt; one of an earlier release has no digests.
        commit: of the policy's model on the hub; empty: it comes from a bucket.

    Raises:
        RefusedError: a model is another one than before, and the run has steps; or the policy's
            is, and the run has published it.
    """
    job.heartbeat.say("comparing the models with those that the run began with")
    current = {
        name: digest(job.folder / name)
        for name in FIELDS
        if (job.folder / name).is_dir() and not (commit and name == BASE)
    }
    # Before the first step rollouts of the published policy may wait to be trained.
    held = set(FIELDS) if run.step > 0 else {BASE} if run.policy is not None else set()
    compared = {name: sha256 for name, sha256 in current.items() if name in held}
    if refusal := changed(run.models, compared, job.spec):
        raise RefusedError(refusal)
    models = run.models | current
    if models != run.models:
        job.stores.runs.record_models(job.run, epoch=job.epoch, models=models)


def digest(folder: Path) -> str:
    """SHA-256 of a model's weights and config, the same for each upload of the same files."""
    return weights_digest([*weight_files(folder), folder / "config.json"])


def changed(
    before: Mapping[str, str], current: Mapping[str, str], spec: RLJobSpec
) -> Refusal | None:
    """The refusal of the first model that is another one than before."""
    critic = spec.algorithm.critic
    uris = {
        BASE: spec.model.uri,
        CRITIC: critic.model.uri if critic is not None and critic.model is not None else "",
        TEACHER: spec.algorithm.teacher or "",
    }
    for name, sha256 in current.items():
        if before.get(name, sha256) != sha256:
            return Refusal(
                field=FIELDS[name],
                value=uris[name][:200],
                reason="ModelChanged",
                message="Its weights or its config.json have changed since the run began.",
                remedy="Put the former files back, or start a new run for the changed model.",
            )
    return None
