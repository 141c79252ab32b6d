"""A job that learns from demonstrations: its trainer is started without a pool."""

from __future__ import annotations

from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World


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
