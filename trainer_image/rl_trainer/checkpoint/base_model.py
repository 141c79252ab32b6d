"""The model that training starts from: located, pinned to a commit, and downloaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from jinja2 import TemplateError, TemplateSyntaxError
from transformers import AutoTokenizer

from rl_contracts.disk import check_room
from rl_contracts.documents.run import Run, RunBase
from rl_contracts.errors import IntegrityError, ObjectMissingError, Refusal, RefusedError
from rl_contracts.hub.model_import import MODEL_FIELD, TOKENIZER_FIELD, ModelImporter
from rl_contracts.hub.models import HubModels
from rl_contracts.hub.selection import LOADED_SUFFIXES
from rl_contracts.model_files import TOKENIZER_FILES
from rl_contracts.stores.files.model_folder import BaseLocations, ModelFolder, ModelLocation
from rl_contracts.stores.objects import Objects
from rl_policy_codec import mxfp4
from rl_trainer.context.bucket_refusals import refusing
from rl_trainer.context.job import Job
from rl_trainer.model.files import unusable
from rl_trainer.model.files.unusable import UNLOADABLE


def places(job: Job, run: Run) -> BaseLocations:
    """Where model and tokenizer lie, those of the hub brought into the bucket; for rank 0 alone.

    Their commits stand in the run document from the first attempt on.

    Raises:
        RefusedError: the hub has no such model, or the run began with another one.
        FencedOutError, IntegrityError, StoreUnavailableError, TerminatedError: see there.
    """
    hub = job.spec.data.hub
    bringer = ModelImporter(
        stores=job.stores,
        hub=HubModels(
            hub.endpoint, token_file=job.hub_token_file, trusted_by=hub.trusted_publisher
        ),
        run=job.run,
        holder=f"trainer of epoch {job.epoch}",
        folder=job.folder,
        progress=job.heartbeat,
        wait_seconds=job.wait_seconds,
    )
    base = bringer.base(job.spec.model)
    _record(job, run, base)
    return base


def pinned(job: Job, base: BaseLocations) -> Job:
    """The job with its model's commit in place of what the manifest calls it."""
    if not base.model.commit:
        return job
    exact = job.spec.model.model_copy(update={"revision": base.model.commit})
    return replace(job, spec=job.spec.model_copy(update={"model": exact}))


def _record(job: Job, run: Run, base: BaseLocations) -> None:
    tokenizer = base.tokenizer or ModelLocation.own("")
    wanted = RunBase(
        uri=base.model.manifest_uri,
        commit=base.model.commit,
        tokenizer_uri=tokenizer.manifest_uri,
        tokenizer_commit=tokenizer.commit,
    )
    if run.base is not None and run.base != wanted:
        message = f"The run began with {run.base}, this is {wanted}."
        raise RefusedError(
            Refusal(
                field=MODEL_FIELD,
                value=base.model.manifest_uri[:200],
                reason="ModelChanged",
                message=message[:500],
                remedy="Name what it began with, or choose another spec.runId.",
            )
        )
    if run.base is None and (wanted.commit or wanted.tokenizer_commit):
        job.stores.runs.record_base(job.run, epoch=job.epoch, base=wanted)


def fetch_base(
    objects: Objects, base: BaseLocations, folder: Path, *, chat_template: str | None = None
) -> None:
    """Download the policy's model and its tokenizer; ``chat_template`` replaces the model's own.

    Raises:
        DiskFullError: there is no room for all of it; nothing was downloaded.
        RefusedError: there is none, its config, weights, tokenizer or chat template are missing,
            or the keys do not permit reading it.
    """
    tokenizer = base.tokenizer
    left_out = TOKENIZER_FILES if tokenizer is not None else frozenset[str]()
    parts = [_listed(objects, base.model, MODEL_FIELD, lambda name: name not in left_out)]
    if tokenizer is not None:
        parts.append(_listed(objects, tokenizer, TOKENIZER_FIELD, TOKENIZER_FILES.__contains__))
    _download(parts, folder)
    _check_and_unpack(folder, base.model.manifest_uri, MODEL_FIELD)
    if chat_template is not None:
        # transformers prefers this file to the field of tokenizer_config.json.
        (folder / "chat_template.jinja").write_text(chat_template)
    check_tokenizer(folder, parts[-1].place.manifest_uri, field=parts[-1].field)
    if chat_template is not None:
        _check_template(folder, chat_template)


def _check_template(folder: Path, text: str) -> None:
    """Refuse what is no Jinja; whether it renders a conversation, only samplers find out."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    except TemplateSyntaxError as error:
        raise RefusedError(
            Refusal(
                field="spec.agent.chatTemplate",
                value=text[:200],
                reason="PromptMalformed",
                message=f"It is no Jinja template: line {error.lineno}: {error.message}."[:400],
                remedy="Correct it, or remove it: then the model's own is used.",
            )
        ) from error
    except (TemplateError, TypeError, ValueError):
        return


def fetch_beside(objects: Objects, uri: str, folder: Path, *, field: str) -> None:
    """Download a model beside the policy's; ``field`` is where the manifest names it.

    Errors as of ``fetch_base``, of config and weights alone.
    """
    _download([_listed(objects, ModelLocation.own(uri), field, lambda name: True)], folder)
    _check_and_unpack(folder, uri, field)


def check_tokenizer(folder: Path, uri: str, *, field: str) -> None:
    """The samplers need it, and only the trainer can end the run with a refusal."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except UNLOADABLE as error:
        message = f"Its tokenizer cannot be loaded: {error}"[:400] + "."
        raise unusable.refused(uri, message, field=field) from error
    if field in (MODEL_FIELD, TOKENIZER_FIELD) and not tokenizer.chat_template:
        raise unusable.refused(uri, "Its tokenizer has no chat template.", field=field)


def vocabulary(folder: Path) -> str:
    """SHA-256 of a tokenizer's tokens with their ids, whatever files they come from."""
    tokens = AutoTokenizer.from_pretrained(folder, local_files_only=True).get_vocab()
    return hashlib.sha256(json.dumps(sorted(tokens.items())).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What is to be downloaded, and the field that names it."""

    place: ModelLocation
    field: str
    folder: ModelFolder


def _listed(
    objects: Objects, place: ModelLocation, field: str, wanted: Callable[[str], bool]
) -> _Part:
    def loaded(name: str) -> bool:
        return PurePosixPath(name).suffix in LOADED_SUFFIXES and wanted(name)

    with _refusing(place, field):
        files = ModelFolder(objects, place, loaded)
        if files.empty:
            raise ObjectMissingError(place.uri)
    return _Part(place=place, field=field, folder=files)


def _download(parts: Sequence[_Part], folder: Path) -> None:
    needed = sum(part.folder.size_bytes for part in parts)
    check_room(needed, folder, what=parts[0].place.manifest_uri)
    for part in parts:
        with _refusing(part.place, part.field):
            part.folder.download(folder)


def _refusing(place: ModelLocation, field: str) -> AbstractContextManager[None]:
    what = "Tokenizer" if field == TOKENIZER_FIELD else "Model"
    return refusing(field, place.manifest_uri, missing=f"{what}NotFound")


def _check_and_unpack(folder: Path, uri: str, field: str) -> None:
    """Refuse a folder without config or weights; weights in MXFP4 become bfloat16."""
    if not (folder / "config.json").is_file():
        raise unusable.refused(uri, "It holds no config.json.", field=field)
    if not any(folder.glob("*.safetensors")):
        raise unusable.refused(uri, "It holds no safetensors file.", field=field)
    try:
        mxfp4.unpack(folder)
    except (IntegrityError, ValueError) as error:
        message = f"Its files are malformed: {unusable.first_line(error)}."
        raise unusable.refused(uri, message, field=field) from error
