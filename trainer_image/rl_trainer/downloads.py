"""The models that the manifest names, on this rank's disk.

A rank alone may fail here, e.g. because its disk is full. So nothing here waits for other ranks,
and no rank begins to load models, which they do together, before all ranks have their files.
"""

from __future__ import annotations

from pathlib import Path

from rl_contracts.errors import RefusedError
from rl_contracts.spec import mesh_features, vision_features
from rl_contracts.spec.algorithm.algorithm import CRITIC_FIELD, TEACHER_FIELD
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.files.model_folder import BaseLocations
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint.base_model import fetch_base, fetch_beside
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import loading, memory, vision

BASE, CRITIC, TEACHER = "base", "critic", "teacher"
"""Folders in the trainer's scratch space; in ``BASE`` is the policy's model as it came."""
FOLDERS = {CRITIC_FIELD: CRITIC, TEACHER_FIELD: TEACHER}
"""Those of other models, by the field that names each."""


def fetch(
    objects: Objects, spec: RLJobSpec, *, base: BaseLocations, folder: Path, world: World = ALONE
) -> None:
    """Download the manifest's models; every rank does so for itself.

    Args:
        objects: any bucket of the endpoint.
        spec: the manifest.
        base: where the policy's model and tokenizer lie.
        folder: where to.
        world: all ranks.

    Raises:
        DiskFullError: there is no room for one of them.
        RefusedError: one of them is missing or is no model, or this trainer cannot do what the
            manifest asks for.
        StoreUnavailableError: the bucket does not answer.
    """
    memory.check(spec.training, device=loading.device(), ranks=world.size)
    for refusal in mesh_features.refusals(spec, world.sizes):
        raise RefusedError(refusal)
    own = folder / BASE
    own.mkdir()
    fetch_base(objects, base, own, chat_template=spec.agent.chat_template)
    sees = vision.has_vision(loading.config_in(own, uri=spec.model.uri))
    for refusal in vision_features.refusals(spec, sees=sees, processes=world.size):
        raise RefusedError(refusal)
    for field, uri in spec.algorithm.other_models.items():
        other = folder / FOLDERS[field]
        other.mkdir()
        fetch_beside(objects, uri, other, field=field)
