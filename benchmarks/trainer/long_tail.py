"""What is trained of a long tail, and what it costs: ``offPolicy.onStale`` Drop, Withhold, Wait.

The trainer is a real one in a process of its own, and so is the agent of a sampler pod; stores and
bucket are real. The engine is a stand-in that replays responses whose lengths, and whose tools'
seconds, have a heavy tail (``benchmarks/operator/lab/long_tail_engine.py``), the same for each run.
Lengths that were trained are compared with those of all responses that were begun.
"""

from __future__ import annotations

import json
import signal
import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.operator.lab.long_tail_engine import LongTailEngine
from benchmarks.operator.lab.paced_engine import listening
from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import running_stores, scratch
from rl_contracts.documents.step_metrics import PACE
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.pods import new_pod
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny
from tests.servers import free_port

STALENESS, GROUP, GROUPS_PER_STEP = 2, 4, 4
PACE_TOKENS, LONGEST = 200.0, 400
"""Tokens per second of a sequence; tokens of the longest response, which takes 2 s."""
WARM_STEPS = 3
BAR_WIDTH = 30
MODES = ("Drop", "Withhold", "Wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run."""

    begun: list[int]
    """Tokens of each response that was begun."""
    trained: list[int]
    withheld: list[int]
    seconds_per_step: float
    pace_seconds: float
    """For each step."""
    lost: dict[str, int]
    """Groups by cause."""

    @property
    def bias(self) -> float:
        """Mean length trained, to the mean of all that was begun."""
        return statistics.fmean(self.trained) / statistics.fmean(self.begun)

    @property
    def tail_bias(self) -> float:
        """The same of the share of responses of at least a quarter of the longest."""
        return share_of_long(self.trained) / share_of_long(self.begun)


def share_of_long(lengths: Sequence[int]) -> float:
    """Share of the responses of at least a quarter of the longest."""
    return sum(length >= LONGEST // 4 for length in lengths) / len(lengths)


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    result, steps = Result("trainer.long_tail"), 12 if quick else 60
    runs = {}
    for mode in MODES:
        with scratch() as folder:
            runs[mode] = measure(folder, mode, steps=steps)
        print_row(mode, runs[mode])
    slowest = max(run.seconds_per_step for run in runs.values())
    for mode, run in runs.items():
        print_bars(mode, run, slowest=slowest)
        result.figures[mode] = figures(run)
    result.at_least("share of long responses, trained to begun, Wait", runs["Wait"].tail_bias, 0.9)
    result.print()


def measure(folder: Path, mode: str, *, steps: int) -> Measured:
    """One run on stores of its own."""
    with ExitStack() as stack:
        settings, stores = stack.enter_context(running_stores(folder))
        world = a_world(folder / "world", stores, settings, mode=mode, steps=steps)
        engine = LongTailEngine(port=free_port(), tokens_per_second=PACE_TOKENS, longest=LONGEST)
        stack.enter_context(listening([engine]))
        pod = new_pod(
            folder / "pod",
            engine_url=engine.url,
            settings=settings,
            stores=stores,
            sections={},
            run=RUN,
        )
        (pod.folder / "rljob.json").write_text(world.spec.model_dump_json(by_alias=True))
        trainer = world.process()
        stack.callback(trainer.kill)
        staged = pod.stage()
        if staged.returncode != 0:
            raise RuntimeError(staged.stderr.decode()[-2000:])
        pod.serve()
        stack.callback(pod.end)
        if trainer.wait(timeout=1200) != 0:
            raise RuntimeError((world.folder / "trainer.log").read_text()[-2000:])
        pod.signal(signal.SIGTERM)
        return measured(world, engine)


def a_world(
    folder: Path, stores: Stores, settings: StoreSettings, *, mode: str, steps: int
) -> World:
    """The run and its trainer's folder."""
    folder.mkdir()
    world = World.make(
        folder,
        stores,
        settings,
        steps=steps,
        promptsPerStep=GROUPS_PER_STEP,
        maxTokensPerMicrobatch=2048,
        checkpoint={"everySteps": 100_000},
    )
    for path in save_tiny(folder / "longer", max_position_embeddings=512).iterdir():
        stores.objects.put_file(f"{stores.objects.prefix}model/{path.name}", path)
    values = world.spec.model_dump(by_alias=True, exclude_none=True)
    off_policy = {"maxStaleness": STALENESS, "onStale": mode}
    values["algorithm"] = {"groupSize": GROUP, "offPolicy": off_policy}
    values["agent"] = {"sampling": {"maxTokensPerTurn": LONGEST, "maxContextTokens": 500}}
    values["samplers"] = [{"name": "main", "template": {"maxConcurrentGroups": 16}}]
    world.spec = type(world.spec).model_validate(values)
    world.write_mounts()
    return world


def measured(world: World, engine: LongTailEngine) -> Measured:
    """What the run's documents say."""
    metrics = [json.loads(line) for line in world.newest("metrics.jsonl").splitlines()]
    kept = metrics[WARM_STEPS:]
    batches = world.stores.batches.lineage(world.run.head_batch)
    withheld = world.stores.rollouts.get([name for batch in batches for name in batch.withheld])
    return Measured(
        begun=list(engine.begun),
        trained=[rollout.num_generated for step in world.trained() for rollout in step],
        withheld=[rollout.num_generated for rollout in withheld.values()],
        seconds_per_step=(kept[-1]["time"] - kept[0]["time"]) / (len(kept) - 1),
        pace_seconds=statistics.fmean(step["seconds"].get(PACE, 0.0) for step in kept),
        lost=dict(Counter(world.run.totals.drops.by_cause)),
    )


def figures(run: Measured) -> dict[str, Any]:
    """For the last line."""
    return {
        "mean_tokens_begun": round(statistics.fmean(run.begun), 1),
        "mean_tokens_trained": round(statistics.fmean(run.trained), 1),
        "trained_to_begun": round(run.bias, 3),
        "share_of_long_begun": round(share_of_long(run.begun), 4),
        "share_of_long_trained": round(share_of_long(run.trained), 4),
        "rollouts_trained": len(run.trained),
        "rollouts_withheld": len(run.withheld),
        "groups_lost": run.lost,
        "responses_begun_for_each_trained": round(len(run.begun) / len(run.trained), 2),
        "seconds_per_step": round(run.seconds_per_step, 3),
        "seconds_paced_per_step": round(run.pace_seconds, 3),
    }


def print_row(mode: str, run: Measured) -> None:
    """As soon as it is known."""
    print(json.dumps({mode: figures(run)}), flush=True)


def print_bars(mode: str, run: Measured, *, slowest: float) -> None:
    """Two lines of a table."""
    rows = (
        ("trained to begun, tokens", run.bias, 1.0),
        ("trained to begun, long ones", run.tail_bias, 1.0),
        ("seconds per step", run.seconds_per_step, slowest),
    )
    for name, value, whole in rows:
        bar = "█" * round(BAR_WIDTH * min(1.0, value / whole))
        print(f"{mode:9} {name:28} {value:6.2f} {bar}")


if __name__ == "__main__":
    main()
