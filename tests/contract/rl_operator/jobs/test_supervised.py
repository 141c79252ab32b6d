"""Jobs that sample nothing: their trainers are started without a pool."""

from __future__ import annotations

from typing import Any

from rl_contracts.documents.run import Outcome
from rl_contracts.documents.task import Queue, TaskState
from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World
from tests.samples.documents import a_run, a_task
from tests.waiting import until


def test_supervised_job_runs_without_samplers_and_reward(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    key = world.make_job(
        algorithm={"objective": "SFT"},
        samplers=[],
        reward={},
        training={"steps": 60, "precision": "FP32", "evaluation": {"everySteps": 30}},
    )
    status = world.settle(key)
    assert status["attempt"] == 1
    trainer = world.cluster.get(kinds.PYTORCH_JOB, world.namespace, "job-1")
    assert trainer is not None
    world.start_pod("job-1-worker-0", of=trainer)
    world.write_run(str(status["runId"]), step=1, steps=60)
    status = world.settle(key)
    assert (status["phase"], status["progress"]["step"]) == ("Running", 1)
    assert world.objects(kinds.SAMPLER_POOL) == []
    assert "PolicyPublished" not in {condition["type"] for condition in status["conditions"]}

    outcome = {
        "kind": "Succeeded",
        "reason": "Trained",
        "message": "60 steps.",
        "final_model": "s3://f",
    }
    world.write_run(str(status["runId"]), step=60, steps=60, outcome=outcome)
    world.end_trainer("job-1", "Succeeded", exit_code=0)
    status = world.settle(key)
    assert (status["phase"], status["finalModel"]) == ("Succeeded", "s3://f")


def test_an_offline_job_starts_once_the_earlier_run_has_groups_and_has_ended(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    key = world.make_job(
        algorithm={"objective": "Offline"},
        data={"rollouts": {"runId": "earlier"}},
        samplers=[],
        reward={},
        training={"epochs": 2, "precision": "FP32"},
    )

    def stalled(reason: str | None) -> None:
        def has_reason() -> bool:
            world.settle(key)
            return world.condition(key, "Stalled").get("reason") == reason

        until(has_reason, what=f"reason {reason}", seen=lambda: world.status(key))

    stalled("RunNotFound")
    runs, now = world.stores.runs, world.stores.mongo.now()
    runs.create(a_run(id="earlier", namespace=world.namespace, epoch=1, heartbeat_at=now))
    stalled("RunAtWork")
    runs.finish("earlier", epoch=1, outcome=Outcome(kind="Failed", reason="r", message="m"))
    stalled("RolloutsPurged")
    assert world.objects(kinds.SAMPLER_POOL) == world.objects(kinds.PYTORCH_JOB) == []
    done: dict[str, Any] = {"queue": Queue.CONSUMED, "state": TaskState.DONE, "rollouts": ["r"]}
    world.stores.tasks.insert([a_task(id="earlier.train.00000000", run="earlier", **done)])
    stalled(None)
    assert world.settle(key)["attempt"] == 1
    assert world.objects(kinds.SAMPLER_POOL) == []
