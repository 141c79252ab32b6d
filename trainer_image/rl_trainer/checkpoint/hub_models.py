"""The final model on the Hugging Face hub, where ``checkpoint.hubRepo`` names a repository."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.hub.calls import DENIED, PATIENCE_SECONDS, ask
from rl_contracts.hub.credential import HubCredential
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Uploaded
from rl_trainer.context.job import Job

log = logging.getLogger(__name__)

T = TypeVar("T")
FIELD = "spec.training.checkpoint.hubRepo"


def make_repository(job: Job) -> None:
    """Make the repository, private, unless it is there.

    When a run begins: a token that may not write is named before anything is trained.

    Raises:
        RefusedError: the hub will not have it.
        StoreUnavailableError: the hub does not answer.
    """
    name = job.spec.training.checkpoint.hub_repo
    if name is not None:
        api = _apis(job)
        _asked(job, "making", lambda: api().create_repo(name, private=True, exist_ok=True))


def push(job: Job, model: Uploaded, *, step: int) -> None:
    """Commit a model's files to the repository's main branch; its other files stay.

    They come from the bucket, by way of this pod's disk. Whoever does so again with the same files
    changes nothing. While files are transferred the other ranks are pinged, and SIGTERM ends the
    push: the next attempt writes the model and pushes again. A commit that has begun is not left.

    Raises:
        TerminatedError: SIGTERM came before the commit.
        RefusedError, StoreUnavailableError: as ``make_repository``.
        IntegrityError, ObjectMissingError, DiskFullError: as ``artifacts.download``.
    """
    name = job.spec.training.checkpoint.hub_repo
    if name is None:
        return
    job.heartbeat.say(f"pushing the final model to {name}")
    api, message = _apis(job), f"Run {job.run}: {step} steps"
    # A transfer that SIGTERM left alone may still write there.
    with tempfile.TemporaryDirectory(dir=job.folder, ignore_cleanup_errors=True) as folder:
        job.heartbeat.during(
            lambda: artifacts.download(
                job.stores.objects,
                Path(folder),
                prefix=model.prefix,
                manifest_sha256=model.manifest_sha256,
                fetched=job.heartbeat.advance,
            )
        )
        added = _uploaded(job, Path(folder), api)
        job.heartbeat.check()
        commit = _asked(
            job, "writing to", lambda: api().create_commit(name, added, commit_message=message)
        )
    log.info("the final model is at %s", commit.commit_url)


def _uploaded(job: Job, folder: Path, api: Callable[[], HfApi]) -> list[CommitOperationAdd]:
    """Upload large files, one after another so that each is progress; what to commit."""
    name = job.spec.training.checkpoint.hub_repo
    assert name is not None
    added = [
        CommitOperationAdd(path_in_repo=path.name, path_or_fileobj=path)
        for path in sorted(folder.iterdir())
    ]
    for file in added:
        send = partial(_upload, api, name, file)
        job.heartbeat.during(partial(_asked, job, "writing to", send))
        job.heartbeat.advance()
    return added


def _upload(api: Callable[[], HfApi], name: str, file: CommitOperationAdd) -> None:
    """Upload a file unless it is small enough to be part of the commit itself."""
    api().preupload_lfs_files(name, [file])


def _apis(job: Job) -> Callable[[], HfApi]:
    """Makes clients with the present token."""
    assert job.hub_token_file is not None, "the operator asks for a token"
    hub = job.spec.data.hub
    credential = HubCredential(
        hub.endpoint, token_file=job.hub_token_file, trusted_by=hub.trusted_publisher
    )
    return lambda: HfApi(endpoint=hub.endpoint.rstrip("/"), token=credential.token())


def _asked(job: Job, doing: str, call: Callable[[], T]) -> T:
    name, endpoint = job.spec.training.checkpoint.hub_repo, job.spec.data.hub.endpoint
    try:
        return ask(endpoint, f"{doing} {name}", call, patience_seconds=PATIENCE_SECONDS)
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise RefusedError(
            Refusal(
                field=FIELD,
                value=f"{name}",
                reason="HubAccessDenied" if status in DENIED else "HubRefused",
                message=f"{endpoint} answered HTTP {status}: "
                f"{error.server_message or 'no reason given'}."[:500],
                remedy="Name a repository that the token of spec.data.hub.tokenSecretRef, or the "
                "identity of trustedPublisher, may write to.",
            )
        ) from error
