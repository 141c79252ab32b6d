"""From the end of a step to a verified policy on every sampler's disk, without engines.

A real MinIO, one trainer and 1, 2 and 4 subscribers, each with a folder of its own, on one
machine; a policy of 228 MB (with --quick 32 MB) in full, and as a delta in which 1.5 % of the
weights changed. Full publication and download, digests included, are held against the bare MinIO
client, which puts and gets the same bytes in as many parallel parts, into a file as new as ours. It
hashes what it sends to sign it and nothing of what it gets; we sign no content and hash it once on
either side.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from minio import Minio

from benchmarks.support.bucket import Bench, policy, running_bucket, stepped
from benchmarks.support.result import Result, is_quick
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.clients.multipart import PART_BYTES
from rl_sampler.engine.weights import Staged
from rl_sampler.policy import fetch, stage
from rl_trainer.context import uploads
from rl_trainer.publish.policy_shard import PolicyShard
from tests.contract.policy_broadcast.world import Line, Subscriber

SUBSCRIBERS = (1, 2, 4)
ROUNDS = 3
COMPARED = 6


def main() -> None:
    """Measure and print."""
    size = (32 if is_quick(__doc__) else 228) * 10**6
    result = Result("broadcast.latency")
    with running_bucket() as bench:
        compare(bench, size, result)
        for count in SUBSCRIBERS:
            for kind in ("full", "delta"):
                figures = latency(bench, size, count=count, kind=kind)
                result.figures[f"{kind}, {count} subscribers"] = figures
                print(f"{kind}, {count} subscribers: {figures}", flush=True)
    result.print()


def compare(bench: Bench, size: int, result: Result) -> None:
    """Our full publication and download beside the bare client's, turn about."""
    objects, folder, tensors = bench.objects, bench.folder, policy(size)
    data = b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors.values())
    times: dict[str, list[float]] = {"put": [], "publish": [], "get": [], "stage": [], "sha256": []}
    cpu: dict[str, list[float]] = {name: [] for name in times}
    client = objects._client

    def measure(name: str, work: Callable[[], object]) -> None:
        started = time.process_time()
        times[name].append(timed(work))
        cpu[name].append(time.process_time() - started)

    for number in range(COMPARED):
        line = Line(objects, remember=False, delta=Delta(anchor_every=1), epoch=10 + number)
        subscriber = Subscriber.make(folder / f"compared-{number}", objects, tensors)
        bare = folder / f"bare-{number}"  # new files, like ours: writing new pages costs time
        pairs: list[list[tuple[str, Callable[[], object]]]] = [
            [
                ("put", partial(bare_put, client, objects.bucket, data)),
                ("publish", partial(line.publish, tensors)),
            ],
            [
                ("get", partial(bare_get, client, objects.bucket, size, bare)),
                ("stage", partial(first_staged, subscriber, line)),
            ],
        ]
        for pair in pairs:
            for name, work in pair if number % 2 else reversed(pair):
                measure(name, work)
        measure("sha256", lambda: hashlib.sha256(data))
        shutil.rmtree(subscriber.weights.root)
        bare.unlink()
    best = {name: min(seconds) for name, seconds in times.items()}
    result.figures["full"] = {
        f"{name}_cpu_seconds": round(min(seconds), 2) for name, seconds in cpu.items()
    } | {f"{name}_mb_per_s": round(size / seconds / 1e6) for name, seconds in best.items()}
    print(result.figures["full"], flush=True)
    for what, bare_name, ours in (("publication", "put", "publish"), ("download", "get", "stage")):
        ratio = best[bare_name] / best[ours]
        result.at_least(f"full {what} against the bare client", ratio, 0.9)


def bare_put(client: Minio, bucket: str, data: bytes) -> None:
    """The client's own parallel multipart upload."""
    client.put_object(
        bucket,
        "bare",
        io.BytesIO(data),
        len(data),
        part_size=PART_BYTES,
        num_parallel_uploads=uploads.PARTS_AT_A_TIME,
    )


def bare_get(client: Minio, bucket: str, size: int, path: Path) -> None:
    """The client's ranged downloads, four at a time, into a file."""
    with path.open("wb") as file:
        file.truncate(size)

    def part(offset: int) -> None:
        response = client.get_object(bucket, "bare", offset, min(fetch.PART_BYTES, size - offset))
        with path.open("r+b") as file:
            file.seek(offset)
            for chunk in response.stream(1 << 20):
                file.write(chunk)
        response.release_conn()

    with ThreadPoolExecutor(fetch.PARTS_AT_A_TIME) as pool:
        list(pool.map(part, range(0, size, fetch.PART_BYTES)))


def latency(bench: Bench, size: int, *, count: int, kind: str) -> dict[str, Any]:
    """Seconds from the snapshot to the last subscriber's verified folder, and their split."""
    anchor_every = 1 if kind == "full" else 1000
    objects, folder = bench.objects, bench.folder
    line = Line(objects, remember=False, delta=Delta(anchor_every=anchor_every), epoch=100 + count)
    tensors = policy(size)
    homes = [
        Subscriber.make(folder / f"{kind}-{count}-{number}", objects, tensors)
        for number in range(count)
    ]
    line.publish(tensors)
    held = [home.stage(line.pointers[1]).folder for home in homes]
    whole, split = [], Split()
    for number in range(ROUNDS):
        tensors = stepped(tensors, number)
        with split.measuring(), ThreadPoolExecutor(count) as pool:
            started = time.perf_counter()
            pointer = line.publish(tensors)
            staging = [
                pool.submit(home.stage, pointer, keep=[kept])
                for home, kept in zip(homes, held, strict=True)
            ]
            held = [future.result().folder for future in staging]
            whole.append(time.perf_counter() - started)
    return {
        "seconds_median": round(statistics.median(whole), 3),
        "seconds_max": round(max(whole), 3),
        **{name: round(statistics.median(seconds), 3) for name, seconds in split.times.items()},
    }


class Split:
    """How long the parts of a broadcast take, over all publishers and subscribers."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure what is called inside."""
        parts: list[tuple[str, Any, str]] = [
            ("encode_seconds", PolicyShard, "encode_delta"),
            ("upload_seconds", uploads, "upload"),
            ("download_seconds", fetch.Downloads, "fetch"),
            ("build_seconds", stage, "build"),
            ("verify_seconds", stage, "check_folder"),
        ]
        originals = [(owner, name, getattr(owner, name)) for _, owner, name in parts]
        for label, owner, name in parts:
            setattr(owner, name, self._timed(label, getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)

    def _timed(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.times.setdefault(label, []).append(time.perf_counter() - started)

        return measured


def first_staged(subscriber: Subscriber, line: Line) -> Staged:
    """Stage the version that ``line`` has published by then."""
    return subscriber.stage(line.pointers[1])


def timed(work: Callable[[], object]) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
