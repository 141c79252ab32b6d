"""Datasets on the Hugging Face hub, or on a mirror of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.hub.calls import DENIED, TIMEOUT_SECONDS
from rl_contracts.hub.endpoint import HubEndpoint

SUFFIXES = (".parquet", ".jsonl", ".json")
METADATA = ("dataset_infos.json", "dataset_info.json", "state.json")
URI = re.compile(r"hf://(datasets/)?(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<path>.+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """The repository, revision and path of an ``hf://`` URI."""

    repo: str
    revision: str
    path: str
    """A folder or a file of the repository; empty: the whole repository."""

    @classmethod
    def parse(cls, uri: str) -> HubAddress:
        """Parse ``hf://org/name[@revision][/path]``."""
        match = URI.fullmatch(uri)
        assert match is not None, f"{uri!r} passed the schema"
        path = (match["path"] or "").strip("/")
        return cls(repo=match["repo"], revision=match["revision"] or "main", path=path)


class NoSuchSplitError(ValueError):
    """The files of a repository do not show which of them hold the split."""


def files_of_split(names: Sequence[str], *, path: str, split: str) -> list[str]:
    """The files that hold a split, in the order in which they are read.

    A split is recognised by the hub's own conventions: a folder or a part of a file's name between
    ``-``, ``_``, ``.`` or spaces is the split's name, e.g. ``data/train-00000-of-00002.parquet``.
    If the files are in several folders or formats, no choice is guessed.

    Args:
        names: names of all files of the repository.
        path: a file, which is then the only result, or a folder to search; empty: search all.
        split: name of the split.

    Raises:
        NoSuchSplitError: no file holds the split, or the choice is ambiguous.
    """
    if path in names:
        if not path.endswith(SUFFIXES):
            raise NoSuchSplitError(f"{path} is none of {', '.join(SUFFIXES)}")
        return [path]
    prefix = f"{path}/" if path else ""
    data = sorted(name for name in names if name.startswith(prefix) and _is_data(name))
    word = re.compile(rf"(^|[-._ /]){re.escape(split)}([-._ /]|$)")
    matching = [name for name in data if word.search(name.removeprefix(prefix))]
    if not matching:
        shown = ", ".join(data[:5]) or "no data file"
        raise NoSuchSplitError(f"no file of split {split!r} among {shown}"[:400])
    _check_unambiguous(matching, split=split)
    return matching


def _check_unambiguous(matching: Sequence[str], *, split: str) -> None:
    folders = sorted({str(PurePosixPath(name).parent) for name in matching})
    if len(folders) > 1:
        raise NoSuchSplitError(
            f"split {split!r} is in several folders, {', '.join(folders[:8])}: name one in the URI"
        )
    if len({PurePosixPath(name).suffix for name in matching}) > 1:
        raise NoSuchSplitError(f"split {split!r} has files in several formats: name one file")


def _is_data(name: str) -> bool:
    return name.endswith(SUFFIXES) and PurePosixPath(name).name not in METADATA


class HubClient(HubEndpoint):
    """Reads datasets of one hub endpoint."""

    def files(
        self, address: HubAddress, *, split: str, field: str, commit: str = ""
    ) -> tuple[str, list[str]]:
        """The commit that the revision names, and the files of a split in it.

        Args:
            address: address of the repository.
            split: name of the split.
            field: path of the source in the manifest.
            commit: read this commit, whatever the revision points to now.

        Raises:
            RefusedError: the repository, revision or split does not exist, or the token may not
                read it.
            StoreUnavailableError: the endpoint does not answer.
        """
        with self._refusing(address, field):
            info = self._ask(
                f"looking for {address.repo}",
                lambda: self._api().dataset_info(
                    address.repo, revision=commit or address.revision, timeout=TIMEOUT_SECONDS
                ),
            )
            names = [sibling.rfilename for sibling in info.siblings or []]
            files = files_of_split(names, path=address.path, split=split)
        assert info.sha, "the hub names the commit that it shows"
        return info.sha, files

    def download(
        self, address: HubAddress, name: str, *, commit: str, folder: Path, field: str
    ) -> Path:
        """Fetch one file of a commit; errors as of ``files``."""
        with self._refusing(address, field):
            return self._file(address.repo, name, kind="dataset", commit=commit, folder=folder)

    @contextmanager
    def _refusing(self, address: HubAddress, field: str) -> Iterator[None]:
        where = f"{self.endpoint}/datasets/{address.repo}"
        try:
            yield
        except (GatedRepoError, RepositoryNotFoundError) as error:
            # The hub gives the same answer for a private and a missing repository.
            message = f"{where} does not exist, or this token has no access"
            remedy = (
                "Correct the name, or set spec.data.hub.tokenSecretRef to a token that may read it."
            )
            raise _refused(address, field, "DatasetNotFound", message, remedy) from error
        except RevisionNotFoundError as error:
            message = f"{where} has no revision {address.revision!r}"
            raise _refused(address, field, "DatasetNotFound", message) from error
        except (EntryNotFoundError, NoSuchSplitError) as error:
            message = f"{where}: {str(error).splitlines()[0]}"
            remedy = "Set split, or name a folder or a file in the URI."
            raise _refused(address, field, "DatasetNotFound", message, remedy) from error
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in DENIED:
                message = f"{where} refused the token with HTTP {status}"
                remedy = "Correct the token of spec.data.hub.tokenSecretRef."
                raise _refused(address, field, "DatasetAccessDenied", message, remedy) from error
            message = f"{where} answered HTTP {status}"
            raise _refused(address, field, "DatasetNotFound", message) from error


def _refused(
    address: HubAddress,
    field: str,
    reason: str,
    message: str,
    remedy: str = "Correct the URI.",
) -> RefusedError:
    return RefusedError(
        Refusal(
            field=f"{field}.uri",
            value=f"hf://{address.repo}"[:200],
            reason=reason,
            message=f"{message}."[:500],
            remedy=remedy,
        )
    )
