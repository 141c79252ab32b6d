from __future__ import annotations

import asyncio

import pytest

from rl_contracts.documents.run import Outcome, PolicyPointer
from rl_contracts.documents.task import Queue
from rl_sampler.claimer import open_queues
from rl_sampler.claims import Claim
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.problems import Problems
from rl_sampler.serving import Serving
from rl_sampler.slots import Slots
from tests.documents import a_run, a_task

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
def test_only_what_can_become_data_is_claimed(
    step: int,
    published: PolicyPointer | None,
    held: PolicyPointer | None,
    open_ones: list[Queue],
) -> None:
    serving = Serving(run=a_run(step=step, policy=published), engine=ENGINE, policy=held)
    assert open_queues(serving, max_staleness=2) == open_ones


def test_nothing_is_claimed_without_run_engine_or_after_the_outcome() -> None:
    held = pointer(1, 0)
    run = a_run(policy=held)
    assert open_queues(Serving(run=run, policy=held), max_staleness=1) == []
    assert open_queues(Serving(engine=ENGINE, policy=held), max_staleness=1) == []
    ended = run.model_copy(update={"outcome": ENDED})
    assert open_queues(Serving(run=ended, engine=ENGINE, policy=held), max_staleness=1) == []


async def test_slots_are_never_overbooked_and_a_large_group_goes_alone() -> None:
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
    async with asyncio.timeout(1), slots.take(100, of=8):
        pass


async def test_a_claim_that_is_ended_drops_its_request() -> None:
    claim = Claim(task=a_task(), renewed=0.0)

    async def forever() -> list[object]:
        await asyncio.Event().wait()
        return []

    claim.request = asyncio.create_task(forever())  # type: ignore[assignment]
    claim.lose()
    claim.end("later reason")
    with pytest.raises(asyncio.CancelledError):
        await claim.request  # type: ignore[misc]
    assert (claim.lost, claim.ended) == (True, "the lease was lost")


def test_problems_stand_until_they_are_cleared(caplog: pytest.LogCaptureFixture) -> None:
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
