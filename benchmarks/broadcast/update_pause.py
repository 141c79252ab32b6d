"""How long an update of the weights keeps the engine from sampling.

A real SGLang on the CPU with 114 million parameters in bfloat16 (228 MB; with --quick 3 layers of
12 and the first mode alone), a real agent, stores and publisher. `--cases` chooses modes. Four
requests of others run all the time. The pause, on which the bar is, is the agent's: from asking for
it until the engine said that it goes on. The longest silence in one of the requests, which is
streamed, is given beside it: in that is the recomputing of what was taken back, and an ordinary
token's time. Seconds per GB are of staging and of the pause, by the agent's metrics.

``read`` is without an engine: a file of 1.2 GB (with --quick 0.2) whose pages the kernel has
dropped is loaded as SGLang loads it (safetensors maps it, each tensor is copied), and once more
after the agent has read it into memory. ``half``: the share of its pages that are in memory after a
process has copied half of each matrix, by rows, as one of two tensor-parallel ranks does.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.support import pages
from benchmarks.support.bucket import stepped
from benchmarks.support.result import Result, chosen_cases
from benchmarks.support.samplers import Publisher, running_world, scratch, write_large
from rl_contracts.spec.storage import Delta, Pause
from rl_sampler.policy import page_cache
from tests.waiting import until

MODES: dict[str, Pause] = {"Retract": "Retract", "InPlace": "InPlace", "Abort": "Abort"}
UPDATES = 6
STREAMS = 4
TOKENS = 900


def main() -> None:
    """Measure and print."""
    modes, quick = chosen_cases(__doc__, MODES)
    result = Result("broadcast.update_pause")
    for mode in modes:
        figures = measure(MODES[mode], layers=3 if quick else 12, updates=3 if quick else UPDATES)
        result.figures[mode] = figures
        print(f"{mode}: {figures}", flush=True)
        for name in ("median", "max"):
            held = figures[f"pause_seconds_{name}"]
            result.at_most(f"seconds of a pause, {name}, {mode}", held, 1.0)
    with scratch() as folder:
        result.figures["read"] = read_figures(folder, gigabytes=0.2 if quick else 1.2)
    result.print()


def read_figures(folder: Path, *, gigabytes: float) -> dict[str, float]:
    """Seconds per GB of a load from the disk, of reading before it, and of the load then."""
    path, rows = folder / "model.safetensors", int(gigabytes * 1e9 / 8 / 2 / 4096)
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn((rows, 4096), generator=generator, dtype=torch.bfloat16)
    save_file({f"m{number}": matrix.clone() for number in range(8)}, path)
    target, size = torch.empty_like(matrix), path.stat().st_size / 1e9
    pages.drop(path)
    cold = timed(lambda: load(path, target))
    pages.drop(path)
    read = timed(lambda: page_cache.read(folder, threading.Event()))
    held = pages.share_in_memory(path)
    warm = timed(lambda: load(path, target))
    pages.drop(path)
    load(path, target[: rows // 2])
    return {
        "gigabytes": round(size, 2),
        "load_from_disk_seconds_per_gb": round(cold / size, 3),
        "read_seconds_per_gb": round(read / size, 3),
        "in_memory_after_read": round(held, 3),
        "load_after_read_seconds_per_gb": round(warm / size, 3),
        "in_memory_after_half": round(pages.share_in_memory(path), 3),
    }


def load(path: Path, target: torch.Tensor) -> None:
    """Copy the first rows of each matrix, as many as ``target`` has."""
    with safe_open(path, framework="pt") as file:
        for number in range(8):
            target.copy_(file.get_tensor(f"m{number}").narrow(0, 0, len(target)))


def timed(work: Callable[[], None]) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(mode: Pause, *, layers: int, updates: int) -> dict[str, float]:
    """Consecutive updates while requests run."""
    with scratch() as folder:
        tensors = write_large(folder / "model", dtype="bfloat16", layers=layers)
        sections = {
            "training": {"steps": 1000, "precision": "BF16"},
            "weightSync": {"pause": mode},
        }
        with running_world(
            folder, folder / "model", dtype="bfloat16", samplers=1, sections=sections
        ) as world:
            publisher, pod = Publisher(world.script, Delta(anchor_every=1000)), world.pods[0]
            pod.wait_version(publisher.publish(tensors).version)
            streams = Streams(world.engines[0].url)
            silent, pauses = [], []
            for number in range(updates):
                tensors = stepped(tensors, number)
                since = streams.wait_more(3)
                pod.wait_version(publisher.publish(tensors).version)
                streams.wait_more(2)
                silent.append(streams.gaps(since))
                pauses.append(metric(pod.get("/metrics")[1], "update_pause_last_seconds"))
            streams.stop()
            report = pod.get("/metrics")[1]
    moved = metric(report, "update_bytes_total") / 1e9
    longest, ordinary = [max(gaps) for gaps in silent], [statistics.median(gaps) for gaps in silent]
    return {
        "updates": updates,
        "silent_seconds_median": round(statistics.median(longest), 3),
        "silent_seconds_max": round(max(longest), 3),
        "pause_seconds_median": round(statistics.median(pauses), 3),
        "pause_seconds_max": round(max(pauses), 3),
        "ordinary_token_seconds_median": round(statistics.median(ordinary), 3),
        "staged_seconds_per_gb": round(metric(report, "update_staged_seconds_total") / moved, 2),
        "paused_seconds_per_gb": round(metric(report, "update_pause_seconds_total") / moved, 3),
    }


class Streams:
    """Requests that always run; records the arrival of each token of the first request."""

    def __init__(self, url: str) -> None:
        self._url, self._ended = url, threading.Event()
        self._arrived: list[float] = []
        self._threads = [
            threading.Thread(target=self._ask, args=(number,)) for number in range(STREAMS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End them all."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def wait_more(self, tokens: int) -> float:
        """Wait for so many more tokens; returns the time now."""
        wanted = len(self._arrived) + tokens
        until(lambda: len(self._arrived) >= wanted, what=f"{tokens} tokens")
        return time.perf_counter()

    def gaps(self, since: float) -> list[float]:
        """Seconds between tokens since then."""
        recent = [arrival for arrival in self._arrived if arrival >= since]
        return [later - earlier for earlier, later in pairwise([since, *recent])]

    def _ask(self, number: int) -> None:
        while not self._ended.is_set():
            body = {
                "input_ids": [258, 16 + number, 257, 259],
                "stream": True,
                "extra_key": str(number),
                "sampling_params": {"max_new_tokens": TOKENS, "ignore_eos": True},
            }
            request = urllib.request.Request(
                self._url + "/generate",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=600) as answer:
                for line in answer:
                    if self._ended.is_set():
                        return
                    if number == 0 and line.startswith(b"data: {"):
                        self._arrived.append(time.perf_counter())


def metric(text: str, name: str) -> float:
    """One of the agent's figures."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"rl_sampler_{name} "))
    return float(line.split()[1])


if __name__ == "__main__":
    main()
