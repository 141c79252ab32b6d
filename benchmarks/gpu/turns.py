"""Whole jobs on one GPU, engine and trainer by turns, as ``placement: Colocated`` has them.

The containers are processes with the commands and variables that the operator renders; document
store and bucket are real. Every digit is asked for the digit 7. The last line but one is a row for
the page of benchmarks.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.engine_scores import GAP
from benchmarks.gpu.trainer import HALF_BILLION, MESSAGE, MISSING, gpu_name, row, shown
from benchmarks.support.result import Result, chosen_cases
from rl_contracts.capacity.training import GIB
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.stores import reports
from rl_contracts.stores.connect import Stores
from tests.contract.turns.pod import TurnsPod, turns_pod
from tests.models.tiny_model import VOCABULARY
from tests.servers import running_minio, running_store, settings_of

ON_GPU = (
    *("--attention-backend", "triton", "--mem-fraction-static", "0.5"),
    "--disable-prefill-cuda-graph",
)
"""Graphs of 58 lengths of prompts are compiled otherwise; these prompts have three tokens."""
LIMIT_SECONDS = 420.0
ENDS = 3
"""Steps at each end of a run whose rewards are compared."""
GAIN = 0.5
ON_POLICY = {"groupSize": 4, "offPolicy": {"maxStaleness": 0}}
"""Each step has a turn of its own, and its gap is that of engine and trainer alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and its training."""

    model: Mapping[str, Any]
    training: Mapping[str, Any]
    learns: bool = True
    """Whether it is long enough to learn."""


SMALL = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "initializer_range": 0.05,
}
CASES = {
    "small": Case(
        model=SMALL,
        training={
            "precision": "BF16",
            "steps": 20,
            "promptsPerStep": 8,
            "optimizer": {"learningRate": 3e-4},
            "checkpoint": {"everySteps": 10},
        },
    ),
    "0.36 B": Case(
        model=HALF_BILLION | {"vocab_size": VOCABULARY, "initializer_range": 0.04},
        training={"precision": "BF16", "steps": 5, "optimizer": {"learningRate": 1e-5}},
        learns=False,
    ),
}
"""The second is the 0.5 B form of ``benchmarks.gpu.trainer``, with the tokenizer's vocabulary."""


def main() -> int:
    """Measure and print; 2 without a GPU."""
    names, _ = chosen_cases(__doc__, CASES)
    name = gpu_name()
    if name is None:
        print(MESSAGE.replace("gpu.trainer", "gpu.turns"), file=sys.stderr)
        return MISSING
    result = Result("gpu.turns", machine=name)
    for each in names:
        measure(each, CASES[each], result, engine=ON_GPU)
    print(row(result))
    result.print()
    return 0


def measure(name: str, case: Case, result: Result, *, engine: Sequence[str]) -> None:
    """Run a job to its end, and hold its figures against the bars."""
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / each for each in ("store", "bucket", "pod")]
        for place in places:
            place.mkdir()
        with running_store(places[0]) as store, running_minio(places[1]) as bucket:
            settings = settings_of(store, bucket)
            with closing(Stores.connect(settings, patience_seconds=20)) as stores:
                stores.mongo.ensure_indexes()
                stores.objects.make_bucket()
                began = time.perf_counter()
                with turns_pod(
                    places[2],
                    stores,
                    settings,
                    engine=engine,
                    model=case.model,
                    sections={"algorithm": ON_POLICY},
                    **case.training,
                ) as pod:
                    trained(pod)
                    seconds = time.perf_counter() - began
                figures(name, case, pod, result, seconds=seconds)


def trained(pod: TurnsPod) -> None:
    """Train to the end; the ends of all logs are shown where the time ends before."""
    try:
        pod.wait_trained(pod.train(), seconds=LIMIT_SECONDS)
    except KeyboardInterrupt:
        print(pod.logs(), file=sys.stderr)
        raise


def figures(name: str, case: Case, pod: TurnsPod, result: Result, *, seconds: float) -> None:
    """Rewards, gaps, and where the seconds of a step went."""
    lines = pod.world.newest(reports.METRICS).splitlines()
    steps = [StepMetrics.model_validate(json.loads(line)) for line in lines]
    means = [statistics.mean(each.reward for each in step) for step in pod.world.trained()]
    later = steps[1:]  # the first one waits for the engine's start
    result.figures[name] = {
        "outcome": pod.world.outcome.kind,
        "steps": len(steps),
        "whole_s": round(seconds, 1),
        "turn_s": spread([each.seconds.get("turn", 0.0) for each in later]),
        "wait_s": spread([each.seconds.get("wait", 0.0) for each in later]),
        "train_s": spread([each.train_seconds for each in later]),
        "gap": spread([each.logprob_gap_mean for each in steps]),
        "rewards": [round(each, 2) for each in means],
        "peak_gib": peak_gib(steps),
    }
    shown(result, name)
    result.at_most(f"{name}: mean log-prob gap", max(s.logprob_gap_mean for s in steps), GAP)
    result.at_most(f"{name}: steps that a token is old", max(s.staleness_max for s in steps), 0)
    if case.learns:
        gain = statistics.mean(means[-ENDS:]) - statistics.mean(means[:ENDS])
        result.at_least(f"{name}: reward, last steps above the first", gain, GAIN)


def peak_gib(steps: Sequence[StepMetrics]) -> float | None:
    """Most of the GPU that the trainer held in a step; None on a processor."""
    peaks = [each.gpus[0].peak_bytes for each in steps if each.gpus]
    return round(max(peaks) / GIB, 2) if peaks else None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and maximum."""
    return {"median": round(statistics.median(values), 4), "max": round(max(values), 4)}


if __name__ == "__main__":
    sys.exit(main())
