"""Builds a policy's safetensors files along a route: a start, and the deltas that follow."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rl_contracts.documents.manifest import Manifest
from rl_policy_codec import state as codec
from rl_policy_codec.patch import Elements
from rl_sampler.policy.fetch import Downloads, Source, StagingCancelledError
from rl_sampler.policy.route import RemoteFile, Route
from rl_sampler.policy.verify import mapped, threads


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
    downloads = Downloads(source, folder, cancelled=cancelled)
    deltas = [
        {folder / f"{number:05d}.{remote.entry.name}": remote for remote in version}
        for number, version in enumerate(route.deltas)
    ]
    wanted = {folder / file.entry.name: file for file in route.files}
    for version in deltas:
        wanted |= version
    # The digests of a start need no check: those of the result are checked after the deltas.
    downloads.fetch(wanted, manifest=None if deltas else manifest)
    names = sorted({tensor.file for tensor in manifest.tensors})
    if route.local is not None:
        for name in names:
            shutil.copyfile(route.local / name, folder / name)
    if deltas:
        state = mapped((folder / name for name in names), mode="r+")
        with ThreadPoolExecutor(threads(), thread_name_prefix="apply") as pool:
            for version in deltas:
                if cancelled.is_set():
                    raise StagingCancelledError(f"staging version {manifest.version} was cancelled")
                jobs = [pool.submit(_apply, path, state) for path in version]
                for job in jobs:
                    job.result()
    for version in deltas:
        own = keep_delta and version is deltas[-1]
        _keep_or_remove(version, folder if own else None)
    downloads.close()


def _keep_or_remove(delta: dict[Path, RemoteFile], folder: Path | None) -> None:
    """Rename a delta's files to their own names in a folder; remove them without a folder."""
    for path, remote in delta.items():
        if folder is None:
            path.unlink()
        else:
            path.rename(folder / remote.entry.name)


def _apply(path: Path, state: dict[str, Elements]) -> None:
    codec.apply(path.read_bytes(), state)
