"""Reads models of the hub by commit; each file is checked against the hub's digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from rl_contracts.documents.model import Part
from rl_contracts.errors import IntegrityError, Refusal, RefusedError
from rl_contracts.hub.calls import DENIED, TIMEOUT_SECONDS
from rl_contracts.hub.endpoint import HubEndpoint
from rl_contracts.hub.selection import ModelAddress, NoModelError, select_files

TOKEN_FIELD = "spec.data.hub.tokenSecretRef"
MAKE_TOKEN = f"Correct the name, or set {TOKEN_FIELD} to a token that may read it."


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """The hub's description of a file of a commit."""

    name: str
    size_bytes: int
    sha256: str = ""
    """Digest of a file in large file storage; empty for other files."""
    blob: str = ""
    """Git's blob digest of a file outside large file storage."""

    def check(self, path: Path) -> str:
        """Check a downloaded file against the description; return its SHA-256.

        Raises:
            IntegrityError: size or digest differs.
        """
        size = path.stat().st_size
        blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        sha256 = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                sha256.update(chunk)
                if not self.sha256:
                    blob.update(chunk)
        if self.size_bytes != size:
            raise IntegrityError(f"{self.name} has {size} bytes, the hub says {self.size_bytes}")
        if self.sha256 not in ("", sha256.hexdigest()):
            raise IntegrityError(f"{self.name} has another digest than the hub says")
        if not self.sha256 and self.blob not in ("", blob.hexdigest()):
            raise IntegrityError(f"{self.name} has another digest than the hub says")
        return sha256.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A model or tokenizer of the hub, and the manifest field that names it."""

    field: str
    uri: str
    address: ModelAddress
    part: Part = "model"
    own_tokenizer: bool = True
    """Whether the model's own tokenizer is used, so that it must exist."""


class HubModels(HubEndpoint):
    """Models of an endpoint."""

    def describe(self, wanted: HubSource, *, commit: str = "") -> tuple[str, list[HubFile]]:
        """Resolve the revision to a commit; return it with the model's files in it.

        Args:
            wanted: the model or tokenizer.
            commit: use this commit instead of resolving the revision.

        Raises:
            RefusedError: repository, revision or model do not exist, or access is denied.
            StoreUnavailableError: the endpoint does not answer.
        """
        address = wanted.address
        with self._refusing(wanted):
            info = self._ask(
                f"resolving {address.repo}",
                lambda: self._api().model_info(
                    address.repo,
                    revision=commit or address.revision,
                    files_metadata=True,
                    timeout=TIMEOUT_SECONDS,
                ),
            )
            siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
            chosen = select_files(siblings, wanted.part, own_tokenizer=wanted.own_tokenizer)
        assert info.sha, "the hub names the commit that it shows"
        return info.sha, [
            HubFile(
                name=name,
                size_bytes=siblings[name].size or 0,
                sha256=lfs.sha256 if (lfs := siblings[name].lfs) else "",
                blob=siblings[name].blob_id or "",
            )
            for name in chosen
        ]

    def download(self, wanted: HubSource, file: HubFile, *, commit: str, folder: Path) -> Path:
        """Download a file of a commit; continues after a broken connection.

        Raises the errors of ``describe``.
        """
        repo = wanted.address.repo
        with self._refusing(wanted):
            return self._file(repo, file.name, kind="model", commit=commit, folder=folder)

    @contextmanager
    def _refusing(self, wanted: HubSource) -> Iterator[None]:
        where, revision = f"{self.endpoint}/{wanted.address.repo}", wanted.address.revision
        kind = "Model" if wanted.part == "model" else "Tokenizer"
        try:
            yield
        except NoModelError as error:
            raise _refused(
                wanted, error.reason, f"{where}@{revision}: {error}", error.remedy
            ) from error
        except HFValidationError as error:
            message = str(error).splitlines()[0].rstrip(".")
            raise _refused(wanted, f"{kind}NotFound", message, "Correct the name.") from error
        except GatedRepoError as error:
            message = f"{where} is gated, and this token has no access"
            remedy = f"Accept its terms on its page, and set {TOKEN_FIELD} to that account's token."
            raise _refused(wanted, f"{kind}AccessDenied", message, remedy) from error
        except RepositoryNotFoundError as error:
            # The hub gives the same answer for a private repository and for a missing one.
            message = f"{where} does not exist, or this token has no access"
            raise _refused(wanted, f"{kind}NotFound", message, MAKE_TOKEN) from error
        except RevisionNotFoundError as error:
            message = f"{where} has no revision {revision!r}"
            remedy = "Name a branch, a tag or a commit of it."
            raise _refused(wanted, f"{kind}NotFound", message, remedy) from error
        except (EntryNotFoundError, HfHubHTTPError) as error:
            raise self._unexpected(wanted, where, kind, error) from error

    @staticmethod
    def _unexpected(wanted: HubSource, where: str, kind: str, error: Exception) -> RefusedError:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 404
        if status in DENIED:
            message = f"{where} refused the token with HTTP {status}"
            return _refused(
                wanted,
                f"{kind}AccessDenied",
                message,
                f"Replace the token that {TOKEN_FIELD} names.",
            )
        return _refused(wanted, f"{kind}NotFound", f"{where} answered HTTP {status}", MAKE_TOKEN)


def _refused(wanted: HubSource, reason: str, message: str, remedy: str) -> RefusedError:
    shown = wanted.uri if "@" in wanted.uri else f"{wanted.uri}@{wanted.address.revision}"
    return RefusedError(
        Refusal(
            field=wanted.field,
            value=shown[:200],
            reason=reason,
            message=f"{message}."[:500],
            remedy=remedy,
        )
    )
