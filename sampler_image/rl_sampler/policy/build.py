"""Builds a policy's safetensors files along a route: a start, and the deltas that follow."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rl_contracts.documents.manifest import Manifest
from rl_policy_codec import state as codec
from rl_policy_codec.files import mapped
from rl_policy_codec.patch import Elements
from rl_sampler.policy.fetch import Downloads, Source, StagingCancelledError
from rl_sampler.policy.route import RemoteFile, Route
from rl_sampler.policy.verify import threads

Delta = Mapping[Path, RemoteFile]
"""The files of a version's delta, by the path that each is downloaded to."""


def build(
    source: Source,
    route: Route,
    manifest: Manifest,
    folder: Path,
    *,
    cancelled: threading.Event,
    keep_delta: bool = False,
) -> None:
    """Write the files that hold the manifest's tensors to a folder.

    Downloaded files are compared with the manifest's digests; copied or patched files are not.

    A repeated call for the same folder and route resumes the interrupted one. Deltas overwrite
    elements, so applying all of them again gives the same result.

    Args:
        source: the bucket, or a peer with the bucket behind it.
        route: what to start from, and the deltas to apply.
        manifest: of the policy.
        folder: the target.
        cancelled: set when the result is no longer wanted.
        keep_delta: keep the policy's own delta in the folder, for peers.

    Raises:
        IntegrityError: a downloaded file does not match its manifest.
        DiskFullError, ObjectMissingError, StagingCancelledError, StoreUnavailableError: as
            ``Downloads.fetch``.
    """
    deltas = [
        {folder / f"{number:05d}.{remote.entry.name}": remote for remote in version}
        for number, version in enumerate(route.deltas)
    ]
    wanted = {folder / file.entry.name: file for file in route.files}
    for delta in deltas:
        wanted |= delta
    downloads = Downloads(source, folder, cancelled=cancelled)
    # The digests of a start need no check: those of the result are checked after the deltas.
    downloads.fetch(wanted, manifest=None if deltas else manifest)
    files = [folder / name for name in sorted({tensor.file for tensor in manifest.tensors})]
    if route.local is not None:
        _copy(route.local, files)
    if deltas:
        _apply_all(deltas, files, version=manifest.version, cancelled=cancelled)
        _clean_up(deltas, folder, keep_last=keep_delta)
    downloads.close()


def _copy(start: Path, files: Iterable[Path]) -> None:
    for file in files:
        shutil.copyfile(start / file.name, file)


def _apply_all(
    deltas: Sequence[Delta], files: Iterable[Path], *, version: int, cancelled: threading.Event
) -> None:
    """Apply deltas to the files of a policy, one version after the other."""
    state = mapped(files, mode="r+")
    with ThreadPoolExecutor(threads(), thread_name_prefix="apply") as pool:
        for delta in deltas:
            if cancelled.is_set():
                raise StagingCancelledError(f"staging version {version} was cancelled")
            # The files of a version change different elements, so their order does not matter.
            jobs = [pool.submit(_apply, path, state) for path in delta]
            for job in jobs:
                job.result()


def _apply(path: Path, state: dict[str, Elements]) -> None:
    codec.apply(path.read_bytes(), state)


def _clean_up(deltas: Sequence[Delta], folder: Path, *, keep_last: bool) -> None:
    """Remove applied deltas; with ``keep_last`` rename the last one's files to their own names."""
    removed, kept = (deltas[:-1], deltas[-1:]) if keep_last else (deltas, [])
    for delta in removed:
        for path in delta:
            path.unlink()
    for delta in kept:
        for path, remote in delta.items():
            path.rename(folder / remote.entry.name)
