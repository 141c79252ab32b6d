"""Rollouts in and out of the document store beside bare commands, and the forming of a batch.

A real embedded document store and a real MinIO. Rollouts of 8,000 tokens are written and read, 16
at a time, in turns with a bare insert and find of the very same documents. A batch of 512 of them
is formed with the trainer's own functions: planned from heads, digested, checked, made tensors.
Then rank 0 of 1, 2 and 4 ranks takes the same batch from the stores: heads of all rollouts and the
whole rollouts of its share, beside all whole rollouts, which it read before there were heads.
"""

from __future__ import annotations

import functools
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson

from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import running_stores, scratch
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout, VersionSpan
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.stores.clients.mongo import Stored
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.overflowing import Read
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer.algorithm import groups, samples
from rl_trainer.algorithm.assessment import Context
from rl_trainer.distributed.division import shares
from rl_trainer.distributed.share import ShareReader
from tests.samples.documents import RUN, a_rollout, a_task

TOKENS, PROMPT, VOCABULARY = 8_000, 400, 150_000
GROUP, GROUPS = 8, 64
AT_ONCE, ROUNDS = 16, 15
FORMED_ROUNDS = 3
FORM = "form-alone"
LIMITS = groups.Limits(vocabulary=VOCABULARY, max_tokens=TOKENS)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:] == [FORM]:
        print(forming_memory())
        return
    quick = is_quick(__doc__)
    result = Result("stores.rollout_io")
    with scratch() as folder:
        stores_side_by_side(folder, result, rounds=4 if quick else ROUNDS)
    forming(result)
    with scratch() as folder:
        intake(folder, result)
    result.print()


def a_long_rollout(group: int, member: int) -> Rollout:
    """A rollout of 8,000 tokens over three policy versions."""
    source = random.Random(group * GROUP + member)
    tokens = [source.randrange(VOCABULARY) for _ in range(TOKENS)]
    logprobs = [0.0] * PROMPT + [-source.random() for _ in range(TOKENS - PROMPT)]
    borders = [PROMPT, 3_000, 6_000, TOKENS]
    spans = [
        VersionSpan(version=index + 1, step=index, start=borders[index], end=borders[index + 1])
        for index in range(3)
    ]
    return a_rollout(
        a_task(group, group_size=GROUP),
        member,
        tokens=pack_int32(tokens),
        mask=b"\0" * PROMPT + b"\1" * (TOKENS - PROMPT),
        logprobs=pack_float32(logprobs),
        spans=spans,
        text="word " * 4 * 1024,
        reward=float(member % 2),
    )


def array_bytes(rollouts: list[Rollout]) -> int:
    """Bytes of tokens, masks and log-probabilities: what there is to move."""
    return sum(
        len(rollout.tokens) + len(rollout.mask) + len(rollout.logprobs) for rollout in rollouts
    )


def stores_side_by_side(folder: Path, result: Result, *, rounds: int) -> None:
    """MB/s of writes and reads, ours and bare in turns, each round on documents of its own."""
    with running_stores(folder) as (_, stores):
        stores.mongo.collection("bare").create_index([("task", 1)])
        sample = [a_long_rollout(0, member) for member in range(AT_ONCE)]
        sides = Sides(stores, sample)
        sides.round(-1)  # connects, makes the tables
        rounds_measured = [sides.round(number) for number in range(rounds)]
    size = array_bytes(sample) / 1e6
    for what in ("write", "read"):
        pairs = [(measured[f"bare_{what}"], measured[f"{what}"]) for measured in rounds_measured]
        result.figures[f"{what}_mb_per_s"] = round(size / statistics.median(b for _, b in pairs), 1)
        result.figures[f"bare_{what}_mb_per_s"] = round(
            size / statistics.median(a for a, _ in pairs), 1
        )
        ratio = statistics.median(bare / ours for bare, ours in pairs)
        result.at_least(f"rollout {what}s to the bare command", ratio, 0.7)
    print(result.figures, flush=True)


class Sides:
    """The same documents written and read by the rollout store and by bare commands."""

    def __init__(self, stores: Stores, sample: list[Rollout]) -> None:
        self._stores, self._sample = stores, sample
        self._bare = stores.mongo.collection("bare")

    def round(self, number: int) -> dict[str, float]:
        """Seconds of each of the four; who goes first alternates."""
        rollouts = [
            rollout.model_copy(update={"id": f"{RUN}.{number}.{index}", "task": f"t{number}"})
            for index, rollout in enumerate(self._sample)
        ]
        documents: list[Stored] = [rollout.to_mongo() for rollout in rollouts]
        ids = [rollout.id for rollout in rollouts]
        steps: dict[str, Callable[[], Any]] = {
            "write": lambda: self._stores.rollouts.put(rollouts),
            "bare_write": lambda: self._bare.insert_many(documents),
            "read": lambda: self._stores.rollouts.get(ids),
            "bare_read": lambda: list(self._bare.find({"_id": {"$in": ids}})),
        }
        names = list(steps)
        if number % 2:
            names = [names[1], names[0], names[3], names[2]]
        return {name: elapsed(steps[name]) for name in names}


def elapsed(work: Callable[[], object]) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def forming(result: Result) -> None:
    """Time here; memory in a process of its own, whose peak is that of the forming."""
    rollouts = {rollout.id: rollout for rollout in whole_batch()}
    size = array_bytes(list(rollouts.values()))
    took = [elapsed(lambda: form(rollouts)) for _ in range(FORMED_ROUNDS)]
    result.figures["batch_mb"] = round(size / 1e6, 1)
    result.figures["form_seconds"] = [round(seconds, 2) for seconds in took]
    result.at_most(
        "seconds to form a batch of 512 rollouts of 8,000 tokens", statistics.median(took), 2.0
    )
    command = [sys.executable, "-m", "benchmarks.stores.rollout_io", FORM]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, after = (float(part) for part in output.split())
    result.figures["form_added_mb"] = round((after - before) / 1e6, 1)
    result.at_most("memory that forming adds, of the batch's bytes", (after - before) / size, 2.0)


class Counting(RolloutStore):
    """Counts the bytes of the documents that it reads."""

    bytes = 0

    def _find(self, ids: list[str], fields: Collection[str] | None) -> list[Stored]:
        documents = super()._find(ids, fields)
        self.bytes += sum(len(bson.encode(document)) for document in documents)
        return documents


def intake(folder: Path, result: Result) -> None:
    """Bytes and seconds that rank 0 takes to read a batch, by the number of ranks."""
    with running_stores(folder) as (_, stores):
        written = whole_batch()
        for first in range(0, len(written), AT_ONCE):
            stores.rollouts.put(written[first : first + AT_ONCE])
        names = [rollout.id for rollout in written]
        del written
        whole = read_by_rank_0(stores, lambda store: store.read(names))
        result.figures["intake_before"] = whole
        for ranks in (1, 2, 4):
            now = read_by_rank_0(stores, functools.partial(take, names=names, ranks=ranks))
            result.figures[f"intake_of_{ranks}"] = now
            result.at_most(
                f"bytes read by rank 0 of {ranks}, of the batch's and its share",
                now["mb"] / (whole["mb"] / ranks),
                1.1,
            )
        print(result.figures, flush=True)


def read_by_rank_0(stores: Stores, read: Callable[[RolloutStore], object]) -> dict[str, float]:
    """Megabytes, and the median of the seconds of several reads without counting."""
    counting = Counting(stores.mongo, stores.objects)
    read(counting)
    took = [elapsed(lambda: read(stores.rollouts)) for _ in range(FORMED_ROUNDS)]
    return {"mb": round(counting.bytes / 1e6, 2), "seconds": round(statistics.median(took), 3)}


def take(store: RolloutStore, *, names: list[str], ranks: int) -> None:
    """What rank 0 reads and checks of a batch: all heads, and its share."""
    reader = ShareReader(store, LIMITS, alone=ranks == 1)
    heads = reader.heads(names).whole
    lengths = [heads[name].num_tokens for name in names]
    own = [names[index] for index in shares(lengths, parts=ranks)[0]]
    wrong = reader.verify({name: heads[name].sha256 for name in own})
    assert wrong == {}


def whole_batch() -> list[Rollout]:
    """Groups of rollouts, in the order of a batch."""
    kept = [a_long_rollout(0, member) for member in range(GROUP)]
    return [
        rollout.model_copy(
            update={
                "id": f"{a_task(group).id}.0.{rollout.member}",
                "task": a_task(group).id,
                # Bytes of its own, as rollouts that were read from the store have them.
                "tokens": bytes(bytearray(rollout.tokens)),
                "mask": bytes(bytearray(rollout.mask)),
                "logprobs": bytes(bytearray(rollout.logprobs)),
            }
        )
        for group in range(GROUPS)
        for rollout in kept
    ]


@dataclass(frozen=True)
class KeptRollouts:
    """Rollouts in memory, in the place of the store."""

    rollouts: dict[str, Rollout]

    def read(self, ids: Sequence[str]) -> Read[Rollout]:
        """As ``RolloutStore.read``."""
        return Read({name: self.rollouts[name] for name in ids}, {})

    def heads(self, ids: Sequence[str]) -> Read[RolloutHead]:
        """As ``RolloutStore.heads``."""
        return Read({name: RolloutHead.of(self.rollouts[name]) for name in ids}, {})


def form(rollouts: dict[str, Rollout]) -> Any:
    """What the trainer does between the rollouts and the first forward pass, but for reading."""
    reader = ShareReader(KeptRollouts(rollouts), LIMITS, alone=True)
    heads = reader.heads(list(rollouts)).whole
    by_task: dict[str, list[Rollout]] = {}
    for rollout in rollouts.values():
        by_task.setdefault(rollout.task, []).append(rollout)
    complete = []
    for number, (task, members) in enumerate(by_task.items()):
        wanted = a_task(
            number, id=task, group_size=GROUP, rollouts=[member.id for member in members]
        )
        group = groups.assemble(wanted, heads, LIMITS)
        assert isinstance(group, groups.Group), group
        complete.append(group)
    empty = groups.empty_batch(
        run=RUN, step=4, epoch=1, parent=None, next_sequence=0, formed_at=0.0
    )
    batch = groups.form(complete, batch=empty, algorithm=Algorithm(), context=Context())
    planned = samples.batch_samples(batch, heads)
    digest = samples.digest(planned)
    wrong = reader.verify({name: head.sha256 for name, head in heads.items()})
    assert wrong == {}
    return reader.read(reader.attached(planned)), digest


def forming_memory() -> str:
    """Resident bytes before forming and at its peak, in a process that does nothing else."""
    rollouts = {rollout.id: rollout for rollout in whole_batch()}
    few = dict(list(rollouts.items())[:GROUP])
    form(few)  # loads what is loaded once
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = memory("VmRSS")
    kept = form(rollouts)
    assert kept
    return f"{before} {memory('VmHWM')}"


def memory(field: str) -> int:
    """Bytes that the kernel gives for this program: ``VmRSS`` now, ``VmHWM`` at the peak.

    Not getrusage's, which a child starts with its parent's peak.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) * 1024


if __name__ == "__main__":
    main()
