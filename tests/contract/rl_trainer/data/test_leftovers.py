"""What an attempt finds in the queues of its run, with the real stores."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.tasks import TaskStore
from rl_trainer.algorithm.groups import Limits
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job
from rl_trainer.data.stream import TrainStream
from rl_trainer.rollouts import leftovers
from tests.samples.documents import a_run
from tests.unit.rl_trainer.conftest import SPEC
from tests.unit.rl_trainer.data.test_stream import a_dataset, an_example

RUN = "r"
LEFT = 4


def a_spec(*, temperature: float = 1.0, estimator: str = "GRPO") -> RLJobSpec:
    return RLJobSpec.model_validate(
        SPEC
        | {
            "training": {"steps": 10, "promptsPerStep": 2},
            "agent": {"sampling": {"temperature": temperature}},
            "algorithm": {"groupSize": 2, "estimator": {"kind": estimator}},
        }
    )


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({}, ""),
        ({"temperature": 0.7}, "sampled at temperature 1, and agent.sampling.temperature is 0.7"),
        ({"estimator": "ReMax"}, "it has no greedy rollout"),
    ],
)
def test_tasks_that_another_manifest_left_and_this_one_cannot_train_leave_the_queue_in_any_state(
    stores: Stores,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    now: dict[str, Any],
    reason: str,
) -> None:
    run, spec = a_run(id=RUN), a_spec(**now)
    stores.runs.create(run)
    beats = Heartbeat(stores, run=RUN, epoch=run.epoch, terminated=threading.Event())
    job = Job(
        name="j",
        run=RUN,
        epoch=run.epoch,
        spec=spec,
        stores=stores,
        heartbeat=beats,
        folder=tmp_path,
    )
    examples = [an_example(id=f"e{number}") for number in range(LEFT)]
    stream = TrainStream(run=RUN, spec=a_spec(), datasets=[a_dataset(*examples)])
    tasks = [stream.task(number, step=0) for number in range(LEFT)]
    stores.tasks.insert(tasks)
    claims = [
        stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="s", lease_seconds=300.0, policy_step=0)
        for _ in range(2)
    ]
    assert claims[0] is not None
    assert stores.tasks.complete(claims[0], rollouts=["a", "b"])
    limits = Limits(
        vocabulary=100,
        max_tokens=100,
        temperature=spec.agent.sampling.temperature,
        estimator=spec.algorithm.estimator,
    )
    monkeypatch.setattr(leftovers, "TASKS_AT_A_TIME", 2)
    get, sizes = TaskStore.get, list[int]()

    def counted(store: TaskStore, ids: Iterable[str]) -> dict[str, Task]:
        wanted = list(ids)
        sizes.append(len(wanted))
        return get(store, wanted)

    with monkeypatch.context() as counting:
        counting.setattr(TaskStore, "get", counted)
        leftovers.tidy(job, run, limits)
    assert max(sizes) <= 2, "prompts may have megabytes"
    assert stores.tasks.total(RUN, queue=Queue.TRAIN) == (0 if reason else LEFT)
    for task in stores.tasks.get(task.id for task in tasks).values():
        assert (task.state is TaskState.DEAD, task.cause is Cause.OVER) == (bool(reason),) * 2
        assert reason in task.reason
