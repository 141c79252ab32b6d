"""What samplers say of themselves becomes the job's conditions, on a real API server."""

from __future__ import annotations

import pytest

from rl_contracts.errors import Refusal
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from tests.contract.rl_operator.world import World

POD, OTHER = "job-main-x-1", "job-main-x-2"
REFUSAL = Refusal(
    field="spec.reward.scorers[0].entryPoint",
    value="mine:poetry",
    reason="EntryPointUnusable",
    message="It cannot be imported: ModuleNotFoundError.",
    remedy="Mend the image.",
)
SCORERS = [{"kind": "Mine", "entryPoint": "mine:poetry"}]


def with_a_sampler(world: World, **changes: object) -> tuple[Key, str]:
    """A job whose two samplers have registered; the first says something."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(reward={"scorers": SCORERS})
    run = str(world.settle(job)["runId"])
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    for pod in (POD, OTHER):
        world.start_pod(pod, of=deployment)
    world.register(run, OTHER, scorers=["Mine"])
    world.register(run, POD, scorers=["Mine"], **changes)
    return job, run


def test_refused_user_code_stalls_the_job_before_its_trainer_starts(world: World) -> None:
    job, run = with_a_sampler(world, refusals=[REFUSAL])
    assert world.settle(job)["attempt"] == 0
    stalled = world.condition(job, "Stalled")
    assert (stalled["reason"], stalled["message"]) == ("EntryPointUnusable", str(REFUSAL))
    world.register(run, POD, scorers=["Mine"])
    assert world.settle(job)["attempt"] == 1
    assert world.condition(job, "Stalled") == {}


@pytest.mark.soak
def test_samplers_of_the_spec_before_an_edit_neither_judge_it_nor_count_for_the_start(
    world: World,
) -> None:
    job, run = with_a_sampler(world, refusals=[REFUSAL])
    world.settle(job)
    assert world.condition(job, "Stalled")["reason"] == "EntryPointUnusable"
    world.make_job(reward={"scorers": [{"kind": "ExactMatch"}]})
    status = world.settle(job)
    assert (status["phase"], status["attempt"]) == ("Starting", 0)
    assert "main has 0 of 2" in world.condition(job, "Reconciling")["message"]
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    for pod in ("job-main-y-1", "job-main-y-2"):
        world.start_pod(pod, of=deployment)
        world.register(run, pod)
    assert world.settle(job)["attempt"] == 1


def test_unreachable_judge_is_named_until_it_answers(world: World) -> None:
    job, run = with_a_sampler(world)
    world.settle(job)
    assert world.condition(job, "ScorerUnavailable") == {}
    world.register(run, POD, scorers=["Mine"], unavailable={"Mine": "m at http://j answers 503"})
    world.settle(job)
    away = world.condition(job, "ScorerUnavailable")
    assert (away["status"], away["reason"]) == ("True", "NoAnswer")
    assert away["message"].startswith("Scorer Mine: m at http://j answers 503. Some samplers claim")
    world.register(run, POD, scorers=["Mine"])
    world.settle(job)
    assert world.condition(job, "ScorerUnavailable")["status"] == "False"
    events = {event["reason"] for event in world.objects(kinds.EVENT)}
    assert {"ScorerUnavailable", "ScorerAvailable"} <= events
