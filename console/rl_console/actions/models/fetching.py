"""Fetches the files that a pod hands out: verified, and continued where they were interrupted."""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from rl_console.cluster.portforward import open_forwarded
from rl_console.errors import RequestRefusedError, UsageError
from rl_console.figures import size
from rl_contracts.handout import FILES_PATH, INDEX_PATH, HandedFile, HandedModel

CHUNK_BYTES = 1 << 20
SILENT_SECONDS = 60.0
"""Longest wait for bytes of a connection."""
SAY_SECONDS = 15.0
INDEX_BYTES = 16 << 20
STAGING = 503
CONNECTION = (OSError, http.client.HTTPException)
"""Errors after which the pod is asked again."""


def index(url: str) -> HandedModel | None:
    """The files; None while the model is being staged.

    Raises:
        OSError, HTTPException: the pod is not reached now.
        RequestRefusedError: its release is another one.
    """
    try:
        with open_forwarded(f"{url}{INDEX_PATH}", seconds=SILENT_SECONDS) as answer:
            return HandedModel.model_validate_json(answer.read(INDEX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == STAGING:
                return None
            raise
    except ValidationError as error:
        cause = "the answer has another form: the image is of another release"
        raise RequestRefusedError(doing="listing the model's files", cause=cause) from error


def fetch(url: str, file: HandedFile, folder: Path, *, say: Callable[[str], None]) -> None:
    """Fetch a file into a folder; one that is there already is only compared.

    Raises:
        OSError, HTTPException: the connection ended; a next call goes on.
        UsageError: another file has this name, or it cannot be written.
        RequestRefusedError: what came is not what the pod listed.
    """
    target, partial = folder / file.name, folder / f"{file.name}.partial"
    if target.exists():
        if digest_of(target) != file.sha256:
            raise UsageError(
                f"{target} exists, with other content", remedy="Choose another folder with --to"
            )
        return
    have = partial.stat().st_size if partial.exists() else 0
    if have > file.size_bytes:
        partial.unlink()
        have = 0
    if have < file.size_bytes:
        _receive(f"{url}{FILES_PATH}{file.name}", partial, have, file.size_bytes, say)
    elif not file.size_bytes:
        _append(partial, b"")
    if digest_of(partial) != file.sha256:
        partial.unlink()
        raise RequestRefusedError(doing=f"fetching {file.name}", cause="its digest differs")
    partial.rename(target)
    say(f"{file.name} ({size(file.size_bytes)})")


def _receive(url: str, partial: Path, have: int, whole: int, say: Callable[[str], None]) -> None:
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"})
    reported_at = time.monotonic()
    with open_forwarded(request, seconds=SILENT_SECONDS) as answer:
        while chunk := answer.read(min(CHUNK_BYTES, whole - have)):
            _append(partial, chunk)
            have += len(chunk)
            if time.monotonic() - reported_at > SAY_SECONDS:
                say(f"{partial.stem}: {size(have)} of {size(whole)}")
                reported_at = time.monotonic()
    if have < whole:
        raise http.client.IncompleteRead(b"", whole - have)


def _append(partial: Path, chunk: bytes) -> None:
    """Write here, where an error is no end of the connection: nothing is tried again for it."""
    try:
        with partial.open("ab") as file:
            file.write(chunk)
    except OSError as error:
        raise UsageError(
            f"{partial} cannot be written: {error.strerror}",
            remedy="Make room and repeat the command, which goes on where it ended; or choose "
            "another folder with --to",
        ) from error


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
