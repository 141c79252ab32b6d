"""Copies a model of a run to a folder of its own, where no retention deletes it."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import ValidationError

from rl_contracts.documents.manifest import Manifest
from rl_contracts.errors import ObjectMissingError, Refusal, RefusedError
from rl_contracts.stores.files.artifacts import MANIFEST, Origin, describe
from rl_contracts.stores.objects import Objects
from rl_sampler.models.stage import CONFIG_FILE

logger = logging.getLogger(__name__)

ROOT = "promoted/"
"""Below the namespace's prefix, beside its runs."""


def promote(objects: Objects, folder: Path, *, name: str, origin: Origin) -> str:
    """Write a model's folder to ``promoted/NAME/``.

    Without ``config.json`` no job takes a folder for a model, and the manifest makes it complete:
    they come last, so a promotion that is interrupted can be repeated.

    Args:
        objects: the bucket.
        folder: with the model.
        name: of the promoted model.
        origin: the run that it is of.

    Returns:
        The folder's ``s3://`` URI.

    Raises:
        RefusedError: the folder is no whole model, or another model has this name.
    """
    prefix = f"{objects.prefix}{ROOT}{name}/"
    if not (folder / CONFIG_FILE).is_file():
        raise _refused(
            name,
            "the folder holds no whole model",
            "Promote a version, the final model or an export.",
        )
    manifest = describe(folder, origin)
    present = _present(objects, prefix)
    if present is not None:
        if present.files != manifest.files:
            raise _refused(
                name,
                f"{objects.uri(prefix)} holds another model, of run {present.run}",
                "Choose another name, or delete that folder.",
            )
        logger.info("%s is complete already", objects.uri(prefix))
        return objects.uri(prefix)
    for entry in sorted(manifest.files, key=lambda entry: entry.name == CONFIG_FILE):
        logger.info("writing %s (%d bytes)", entry.name, entry.size_bytes)
        objects.put_file(prefix + entry.name, folder / entry.name)
    objects.put(prefix + MANIFEST, manifest.to_bytes())
    return objects.uri(prefix)


def _present(objects: Objects, prefix: str) -> Manifest | None:
    try:
        return Manifest.model_validate_json(objects.get(prefix + MANIFEST))
    except ObjectMissingError:
        return None
    except ValidationError as error:
        uri = objects.uri(prefix)
        raise _refused(uri, f"{uri}{MANIFEST} is malformed", "Delete that folder.") from error


def _refused(name: str, message: str, remedy: str) -> RefusedError:
    return RefusedError(
        Refusal(
            field="promoted model",
            value=name,
            reason="NotPromoted",
            message=f"{message}.",
            remedy=remedy,
        )
    )
