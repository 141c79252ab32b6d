"""How long an update of the weights keeps the engine from sampling.

A real SGLang on the CPU with 114 million parameters in bfloat16 (228 MB; with --quick 3 layers of
12 and the first mode alone), a real agent, stores and publisher. `--cases` chooses modes. Four
requests of others run all the time. The pause, on which the bar is, is the agent's: from asking for
it until the engine said that it goes on. The longest silence in one of the requests, which is
streamed, is told beside it: in that is the recomputing of what was taken back, and an ordinary
token's time.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.request
from itertools import pairwise

from benchmarks.support.bucket import stepped
from benchmarks.support.result import Result, chosen_cases
from benchmarks.support.samplers import Publisher, running_world, scratch, write_large
from rl_contracts.spec.storage import Delta, Pause
from tests.waiting import until

MODES: dict[str, Pause] = {"Retract": "Retract", "InPlace": "InPlace", "Abort": "Abort"}
UPDATES = 6
STREAMS = 4
TOKENS = 900


def main() -> None:
    """Measure and print."""
    modes, quick = chosen_cases(__doc__, MODES)
    result = Result("update_pause")
    for mode in modes:
        figures = measure(MODES[mode], layers=3 if quick else 12, updates=3 if quick else UPDATES)
        result.figures[mode] = figures
        print(f"{mode}: {figures}", flush=True)
        for name in ("median", "max"):
            held = figures[f"pause_seconds_{name}"]
            result.at_most(f"seconds of a pause, {name}, {mode}", held, 1.0)
    result.print()


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
    longest, ordinary = [max(gaps) for gaps in silent], [statistics.median(gaps) for gaps in silent]
    return {
        "updates": updates,
        "silent_seconds_median": round(statistics.median(longest), 3),
        "silent_seconds_max": round(max(longest), 3),
        "pause_seconds_median": round(statistics.median(pauses), 3),
        "pause_seconds_max": round(max(pauses), 3),
        "ordinary_token_seconds_median": round(statistics.median(ordinary), 3),
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
