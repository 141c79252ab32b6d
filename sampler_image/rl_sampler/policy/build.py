"""Builds a policy's safetensors files along a route: a start, and the deltas after it."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rl_contracts.documents.manifest import Manifest
from rl_policy_codec import state as codec
from rl_policy_codec.patch import Elements
from rl_sampler.policy.fetch import Downloads, StagingEndedError
from rl_sampler.policy.route import Remote, Route
from rl_sampler.policy.source import Source
from rl_sampler.policy.verify import mapped, threads


def build(
    source: Source,
    route: Route,
    manifest: Manifest,
    folder: Path,
    *,
    ended: threading.Event,
    keep_delta: bool = False,
) -> None:
    """Put the files that hold the manifest's tensors into a folder.

    What is taken from the bucket as it is has been compared with the manifest's digests; what was
    copied or patched has not.

    Called again for the same folder and route it goes on where it was cut short: deltas overwrite,
    so applying all of them again gives the same.

    Args:
        source: the bucket, or a peer before it.
        route: from where to where.
        manifest: of the policy.
        folder: where to.
        ended: set when nobody wants the result any more.
        keep_delta: leave the policy's own delta there, for peers.

    Raises:
        IntegrityError: what was downloaded is not what its manifest says.
        DiskFullError, ObjectMissingError, StagingEndedError, StoreUnavailableError: see ``fetch``.
    """
    downloads = Downloads(source, folder, ended=ended)
    deltas = [
        {folder / f"{number:05d}.{one.entry.name}": one for one in version}
        for number, version in enumerate(route.deltas)
    ]
    wanted = {folder / file.entry.name: file for file in route.files}
    for version in deltas:
        wanted |= version
    # A base's own digests tell nothing that those of the result do not.
    downloads.fetch(wanted, manifest=None if deltas else manifest)
    names = sorted({tensor.file for tensor in manifest.tensors})
    if route.local is not None:
        for name in names:
            shutil.copyfile(route.local / name, folder / name)
    if deltas:
        state = mapped((folder / name for name in names), mode="r+")
        with ThreadPoolExecutor(threads(), thread_name_prefix="apply") as pool:
            for version in deltas:
                if ended.is_set():
                    raise StagingEndedError(f"staging version {manifest.version} was given up")
                jobs = [pool.submit(_apply, path, state) for path in version]
                for job in jobs:
                    job.result()
    for version in deltas:
        own = keep_delta and version is deltas[-1]
        _put_away(version, folder if own else None)
    downloads.close()


def _put_away(delta: dict[Path, Remote], folder: Path | None) -> None:
    """Give a delta's files their own names in a folder; remove them without one."""
    for path, one in delta.items():
        if folder is None:
            path.unlink()
        else:
            path.rename(folder / one.entry.name)


def _apply(path: Path, state: dict[str, Elements]) -> None:
    codec.apply(path.read_bytes(), state)
