from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rl_contracts.documents.run import Outcome, PolicyPointer
from rl_contracts.documents.task import Queue
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.slots import Slots
from rl_sampler.episodes.claimer import Claimer, has_room, open_queues
from rl_sampler.tasks.claims import Claim, EpisodeEndedError
from tests.samples.documents import a_run, a_task
from tests.waiting import HUNG_SECONDS

ENGINE = ServerInfo(version="0.5.23", max_running_requests=64, max_req_input_len=512)
ENDED = Outcome(kind="Succeeded", reason="Done", message="")
TRAIN, EVALUATION = Queue.TRAIN, Queue.EVALUATION


def pointer(version: int, step: int) -> PolicyPointer:
    return PolicyPointer(version=version, epoch=1, step=step, prefix="p/", manifest_sha256="0")


@pytest.mark.parametrize(
    ("step", "published", "held", "open_ones"),
    [
        (0, pointer(1, 0), pointer(1, 0), [EVALUATION, TRAIN]),
        (5, pointer(6, 5), pointer(6, 5), [EVALUATION, TRAIN]),
        (5, pointer(6, 5), pointer(4, 3), [TRAIN]),
        (5, pointer(6, 5), pointer(3, 2), []),
        (5, pointer(4, 2), pointer(4, 2), [EVALUATION]),
        (5, pointer(6, 5), None, []),
        (5, None, None, []),
    ],
)
def test_only_queues_whose_tasks_can_become_data_are_open(
    step: int,
    published: PolicyPointer | None,
    held: PolicyPointer | None,
    open_ones: list[Queue],
) -> None:
    serving = Serving(run=a_run(step=step, policy=published), engine=ENGINE, policy=held)
    assert open_queues(serving, max_staleness=2) == open_ones


def test_no_queue_is_open_without_run_or_engine_or_after_the_outcome() -> None:
    held = pointer(1, 0)
    run = a_run(policy=held)
    assert open_queues(Serving(run=run, policy=held), max_staleness=1) == []
    assert open_queues(Serving(engine=ENGINE, policy=held), max_staleness=1) == []
    ended = run.model_copy(update={"outcome": ENDED})
    assert open_queues(Serving(run=ended, engine=ENGINE, policy=held), max_staleness=1) == []


async def test_slots_are_never_overbooked_and_a_large_group_runs_alone() -> None:
    slots, running, most = Slots(), 0, 0

    async def group(size: int) -> None:
        nonlocal running, most
        async with slots.take(size, of=8):
            running += size
            most = max(most, running)
            await asyncio.sleep(0)
            running -= size

    await asyncio.gather(*(group(size) for size in (3, 4, 1, 8, 5, 2, 2)))
    assert most <= 8
    async with asyncio.timeout(HUNG_SECONDS), slots.take(100, of=8):
        pass


async def test_ending_a_claim_cancels_all_of_its_work() -> None:
    claim = Claim(task=a_task(), renewed=0.0)
    dropped: list[int] = []

    async def forever(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            dropped.append(number)

    work = [asyncio.create_task(claim.run(forever(index))) for index in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    claim.mark_lost()
    claim.end("later reason")
    for result in await asyncio.gather(*work, return_exceptions=True):
        assert isinstance(result, EpisodeEndedError)
    assert (claim.lost, claim.ended, sorted(dropped)) == (True, "the lease was lost", [0, 1, 2])
    with pytest.raises(EpisodeEndedError, match="the lease was lost"):
        await claim.run(forever(3))
    assert len(dropped) == 3, "work that comes too late is not begun"


async def test_cancelling_work_does_not_end_its_claim() -> None:
    claim = Claim(task=a_task(), renewed=0.0)
    work = asyncio.create_task(claim.run(asyncio.Event().wait()))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert claim.ended == ""


def test_oldest_tokens_decide_when_a_claim_is_stale() -> None:
    claim = Claim(task=a_task(), renewed=0.0)
    claim.keep_tokens(3, member=0)
    claim.keep_tokens(5, member=1)
    assert claim.sampling_step == 3


@pytest.mark.parametrize(
    ("begun", "drop", "withhold"),
    [
        ({}, None, None),
        ({0: 3, 1: 5, 2: 5}, 3, None),
        ({0: 3, 1: 3}, 3, None),  # the third has not begun: it may be young enough
        ({0: 3, 1: 4, 2: 3}, 3, 4),
        ({0: 3, 1: 3, 2: 3, 3: 9}, 3, 3),  # the greedy baseline is never trained
        ({0: 5, 1: 5, 2: 5}, None, None),
    ],
)
def test_a_claim_ends_when_it_can_be_of_no_more_use(
    begun: dict[int, int], drop: int | None, withhold: int | None
) -> None:
    claim = Claim(task=a_task(group_size=3, baseline=True), renewed=0.0)
    for member, step in begun.items():
        claim.keep_tokens(step, member=member)
    assert claim.stale_step(oldest_step=5, withhold=False) == drop
    assert claim.stale_step(oldest_step=5, withhold=True) == withhold
    evaluation = Claim(task=a_task(queue=EVALUATION), renewed=0.0, kept=dict(begun))
    assert evaluation.stale_step(oldest_step=5, withhold=False) is None


def test_problems_stay_until_they_are_cleared(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    problems = Problems(clock=lambda: now)
    for attempt in range(5):
        problems.note("store", f"down {attempt}")
    problems.note("policy", "damaged")
    assert str(problems) == "policy: damaged; store: down 4"
    assert len(caplog.records) == 2
    problems.clear("store")
    problems.clear("never stood")
    assert str(problems) == "policy: damaged"


@pytest.mark.parametrize(
    ("unasked", "demand", "room"),
    [([], 0, True), ([], 16, True), ([], 17, False), ([8], 8, True), ([8], 9, False)],
)
def test_one_group_more_is_claimed_than_the_engine_has_slots_for(
    unasked: list[int], demand: int, room: bool
) -> None:
    counted_by_slots = Claim(task=a_task(group_size=8), renewed=0.0, counted_by_slots=True)
    claims = [Claim(task=a_task(group_size=size), renewed=0.0) for size in unasked]
    assert has_room([counted_by_slots, *claims], demand=demand, slots=16) is room


class EndlessBook:
    """There is always another task of eight members."""

    def __init__(self) -> None:
        self.taken = 0

    async def take(self, run: str, *, queue: Queue, owner: str, policy_step: int) -> Claim:
        self.taken += 1
        return Claim(task=a_task(self.taken, group_size=8), renewed=0.0)

    def drop(self, claim: Claim) -> None:
        pass


async def test_claimer_waits_for_free_slots_with_one_group_queued() -> None:
    slots, book, done = Slots(), EndlessBook(), asyncio.Queue[None]()
    served = pointer(1, 0)
    serving = Serving(
        engine=ServerInfo(version="0.5.23", max_running_requests=16, max_req_input_len=512),
        policy=served,
        run=a_run(policy=served),
    )

    class Runner:
        async def run(self, claim: Claim) -> None:
            claim.counted_by_slots = True
            async with slots.take(8, of=16):
                await done.get()

    class Shared(SimpleNamespace):
        async def retry(self, *_: Any, **__: Any) -> int:
            return 0

    stores = SimpleNamespace(tasks=None)
    parts: dict[str, Any] = {
        "shared": Shared(stores=stores),
        "book": book,
        "runner": Runner(),
        "outages": None,
    }
    wide = SimpleNamespace(max_concurrent_groups=64)
    spec = SimpleNamespace(algorithm=SimpleNamespace(off_policy=SimpleNamespace(max_staleness=4)))
    assignment: Any = SimpleNamespace(template=wide, spec=spec, run="r", sampler="s")
    claimer = Claimer(assignment, serving=serving, slots=slots, counters=Counters(), **parts)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(claimer.run(group))
        for given_back in range(3):
            for _ in range(100):
                await asyncio.sleep(0)
            assert (book.taken, slots.demand) == (3 + given_back, 24)
            done.put_nowait(None)
        claimer.stop()
        for _ in range(5):
            done.put_nowait(None)
        await running


def test_nothing_is_claimed_with_a_policy_from_after_a_restored_backup() -> None:
    """Once it is disowned it stays so, even when the run has as many steps again."""
    lost = PolicyPointer(version=6, epoch=2, step=5, prefix="lost/", manifest_sha256="0")
    known = pointer(4, 3)
    serving = Serving(engine=ENGINE, policy=lost)
    serving.note_run(a_run(epoch=2, step=5, last_version=6, policy=lost))
    assert open_queues(serving, max_staleness=8) == [EVALUATION, TRAIN]
    serving.note_run(a_run(epoch=1, step=3, last_version=4, policy=known))
    assert open_queues(serving, max_staleness=8) == []
    again = PolicyPointer(version=6, epoch=3, step=5, prefix="new/", manifest_sha256="1")
    serving.note_run(a_run(epoch=3, step=6, last_version=6, policy=again))
    assert open_queues(serving, max_staleness=8) == []
    serving.policy = again
    assert open_queues(serving, max_staleness=8) == [EVALUATION, TRAIN]


def test_a_read_of_an_older_run_document_disowns_a_policy_only_until_the_next() -> None:
    served = pointer(6, 5)
    now = a_run(epoch=1, step=5, last_version=6, policy=served)
    serving = Serving(engine=ENGINE, policy=served)
    for run, queues in (
        (now, [EVALUATION, TRAIN]),
        (now.model_copy(update={"last_version": 5, "policy": pointer(5, 5)}), []),
        (now, [EVALUATION, TRAIN]),
    ):
        serving.note_run(run)
        assert open_queues(serving, max_staleness=2) == queues


def test_a_policy_of_the_published_number_but_another_epoch_evaluates_nothing() -> None:
    held = PolicyPointer(version=6, epoch=0, step=5, prefix="lost/", manifest_sha256="0")
    run = a_run(epoch=1, step=5, last_version=6, policy=pointer(6, 5))
    serving = Serving(run=run, engine=ENGINE, policy=held)
    assert open_queues(serving, max_staleness=2) == [TRAIN]
