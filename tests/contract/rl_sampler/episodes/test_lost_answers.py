"""What the store did for an agent that never heard of it."""

from __future__ import annotations

import functools
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.engine.slots import Slots
from rl_sampler.episodes.claimer import Claimer
from rl_sampler.tasks.claims import ClaimBook, complete
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.network.mongo_front import Front, front_before, takes_a_task
from tests.samples.documents import RUN, a_task
from tests.servers import StoreServer
from tests.waiting import until


@pytest.fixture
def front(store_server: StoreServer) -> Iterator[Front]:
    with front_before(store_server.uri) as front:
        yield front


@pytest.fixture
def behind(front: Front, store_settings: StoreSettings) -> StoreSettings:
    """The stores as one sees them who asks through the front."""
    return StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)


def test_agent_recovers_a_claim_whose_answer_was_lost(
    front: Front, behind: StoreSettings, trainer: ScriptedTrainer, make_pod: MakePod, stores: Stores
) -> None:
    pod = make_pod(settings=behind)
    pod.serve_first_of(trainer)
    front.lose(takes_a_task)
    tasks = trainer.insert(1)
    until(lambda: "store:" in pod.log(), what="the agent to notice")
    assert trainer.states(tasks) == dict.fromkeys(tasks, TaskState.CLAIMED)
    front.come_back()
    until(lambda: trainer.all_done(tasks), what="the group")
    assert stores.tasks.get(tasks)[tasks[0]].attempt == 1
    assert pod.signal(signal.SIGTERM) == 0


async def test_stopped_agent_hands_back_a_claim_whose_answer_was_lost(
    front: Front, behind: StoreSettings, stores: Stores
) -> None:
    stores.tasks.insert([a_task()])
    with closing(Stores.connect(behind, patience_seconds=1.0)) as afar:
        shared = SharedStores(afar, problems=Problems())
        book, nothing = (
            ClaimBook(shared),
            dict.fromkeys(["runner", "serving", "counters", "outages"]),
        )
        assignment: Any = SimpleNamespace(run=RUN, sampler="a")
        parts: dict[str, Any] = {"shared": shared, "book": book, "slots": Slots(), **nothing}
        claimer = Claimer(assignment, **parts)
        front.lose(takes_a_task)
        with pytest.raises(StoreUnavailableError):
            await book.take(RUN, queue=Queue.TRAIN, owner="a", policy_step=0)
        front.come_back()
        await claimer.drain(seconds=0)
    task = stores.tasks.get([a_task().id])[a_task().id]
    assert (task.state, task.cause, task.attempt, task.excused) == (
        TaskState.RETRY,
        Cause.STOPPED,
        1,
        1,
    )


class Deaf(SharedStores):
    """Once told to be, it never hears one answer; leases are renewed before it asks again."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def call(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        answer = await super().call(call, *args, **kwargs)
        if self.meanwhile is None:
            return answer
        meanwhile, self.meanwhile = self.meanwhile, None
        await meanwhile()
        raise StoreUnavailableError(store="document store", doing="asking", cause="hung up")


@pytest.mark.parametrize("taken", [False, True], ids=["ours", "taken by another"])
async def test_renewal_of_a_completed_task_does_not_lose_the_completion(
    stores: Stores, taken: bool
) -> None:
    stores.tasks.insert([a_task()])
    shared = Deaf(stores, problems=Problems())
    book = ClaimBook(shared)
    claim = await book.take(RUN, queue=Queue.TRAIN, owner="a", policy_step=0)
    assert claim is not None
    if taken:
        assert stores.tasks.hand_back(claim.task, reason="its lease was over")
    shared.meanwhile = functools.partial(book._renew, [claim])
    assert await complete(shared, claim, ["r"]) is not taken
    done = stores.tasks.get([claim.task.id])[claim.task.id].state == TaskState.DONE
    assert done is not taken
