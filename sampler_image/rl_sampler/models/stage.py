"""Makes the folder of one model of a run: of a published version, or of an exported model."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rl_contracts.disk import check_room
from rl_contracts.documents.manifest import Manifest, PolicyRecord
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.engine_server import DTYPES
from rl_contracts.errors import IntegrityError, ObjectMissingError, Refusal, RefusedError
from rl_contracts.model_files import INDEX_FILE, is_plain_file_name, read_header
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import split_uri
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.weights import MANIFEST_FILE, POINTER_FILE
from rl_sampler.models.merge import merge
from rl_sampler.policy.base import companions, stage_base
from rl_sampler.policy.model import base_locations
from rl_sampler.policy.stage import Stager
from rl_sampler.policy.verify import run_signature

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which model: a published version, or the folder of an exported one."""

    version: int = 0
    """0: ``uri``."""
    uri: str = ""
    """``s3://`` URI of a folder with a manifest, as the trainer writes them."""
    merged: bool = False
    """An adapter is merged into its model."""


def model_folder(assignment: Assignment) -> Path:
    """Where the model is staged."""
    return assignment.weights.root / "model"


def stage_model(assignment: Assignment, stores: Stores, wanted: Wanted) -> Path:
    """Stage a model, every file verified; does nothing where the folder exists.

    Returns:
        The folder: a model in Hugging Face layout, or an adapter in PEFT's where the wanted version
        is one that is not to be merged.

    Raises:
        RefusedError: there is no such model (any more).
        IntegrityError: what is stored is damaged.
        DiskFullError, StoreUnavailableError: as of their work.
    """
    folder = model_folder(assignment)
    if folder.is_dir():
        return folder
    partial = folder.with_name("model.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if wanted.version:
        _stage_version(assignment, stores, wanted, partial)
    else:
        _download(stores, wanted.uri, partial)
    partial.rename(folder)
    logger.info("staged %s", wanted.uri or f"version {wanted.version}")
    return folder


def _download(stores: Stores, uri: str, partial: Path) -> None:
    bucket, key = split_uri(uri)
    objects, prefix = stores.objects.of_bucket(bucket), key.rstrip("/") + "/"
    try:
        stored = objects.get(prefix + MANIFEST_FILE, most=MANIFEST_BYTES)
    except ObjectMissingError as error:
        raise _missing(
            uri, f"{uri} has no {MANIFEST_FILE}: it is deleted, or incomplete"
        ) from error
    try:
        manifest = Manifest.model_validate_json(stored)
    except ValidationError as error:
        raise IntegrityError(f"{uri}/{MANIFEST_FILE} is malformed: {error}") from error
    check_room(manifest.full_bytes, partial, what="the model")
    for entry in manifest.files:
        if not is_plain_file_name(entry.name) or not entry.sha256:
            raise IntegrityError(f"{uri}/{MANIFEST_FILE} has a bad entry {entry.name!r}")
        objects.get_file(
            prefix + entry.name, partial / entry.name, sha256=entry.sha256, most=entry.size_bytes
        )


def _stage_version(assignment: Assignment, stores: Stores, wanted: Wanted, partial: Path) -> None:
    spec, weights = assignment.spec, assignment.weights
    record = _record(assignment, stores, wanted.version)
    if not weights.base.is_dir():
        stage_base(stores.objects, places=base_locations(assignment, stores), folder=weights.base)
    signature = run_signature(weights.base, spec)
    stager = Stager(stores.objects, weights=weights, signature=signature, relay=None)
    pointer = PolicyPointer(
        version=record.version,
        epoch=record.epoch,
        step=record.step,
        prefix=record.prefix,
        manifest_sha256=record.manifest_sha256,
    )
    try:
        staged = stager.stage(pointer, keep=[], cancelled=threading.Event())
    except ObjectMissingError as error:
        number = wanted.version
        raise _missing(str(number), f"version {number} is being deleted: {error}") from error
    adapter, files = signature.adapter, sorted(staged.folder.iterdir())
    if adapter is not None and wanted.merged:
        logger.info("merging the adapter into its model")
        merge(weights.base, staged.folder, adapter, partial, precision=spec.training.precision)
        files = companions(weights.base)
    for path in files:
        if path.name not in (MANIFEST_FILE, POINTER_FILE, INDEX_FILE, CONFIG_FILE):
            os.link(path, partial / path.name)
    if adapter is None or wanted.merged:
        _describe(weights.base, partial, DTYPES[spec.training.precision])


def _describe(base: Path, partial: Path, dtype: str) -> None:
    """Write config and index for weights as they were trained."""
    config = json.loads((base / CONFIG_FILE).read_bytes())
    config.pop("torch_dtype", None)  # the name before transformers 5
    config["dtype"] = dtype
    (partial / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    files = sorted(partial.glob("*.safetensors"))
    if len(files) > 1:
        weight_map = {name: path.name for path in files for name in read_header(path)}
        size = sum(path.stat().st_size for path in files)
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
        (partial / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n")


def _record(assignment: Assignment, stores: Stores, version: int) -> PolicyRecord:
    """The catalogue's entry of a version: the newest trainer's that published it."""
    records = stores.policies.of_run(assignment.run)
    named = [record for record in records if record.version == version]
    if not named:
        raise _missing(str(version), f"run {assignment.run} has no version {version} (any more)")
    return max(named, key=lambda record: record.epoch)


def _missing(value: str, message: str) -> RefusedError:
    return RefusedError(
        Refusal(
            field="the model",
            value=value,
            reason="ModelNotFound",
            message=f"{message}.",
            remedy="`kubectl rl policies JOB` lists the versions that are kept.",
        )
    )
