"""Two trainers of one run side by side, paused and resumed; and what must hold afterwards."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rl_contracts.audit import run as audit
from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Task
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.listing import scan
from rl_contracts.stores.objects import split_uri
from tests.contract.rl_trainer.durability.pausing import Point, Trainer, Trainers
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

SUCCEEDED, FENCED_OUT = 0, 3
STEPS = 4
TRAINING: dict[str, Any] = {
    "steps": STEPS,
    "checkpoint": {"everySteps": 2, "keepLast": 1},
    "evaluation": {"beforeTraining": False, "afterTraining": True, "everySteps": 2},
}
COMMIT = r"writing step, head_batch, .* of run .*"


def old_resumes_last(world: World, trainers: Trainers, point: Point) -> bool:
    """The old trainer sleeps through the whole life of the new one; False: it never got there."""
    with sampling(TestSampler(world.stores, RUN)):
        old = trainers.start(world, point)
        try:
            if not old.await_pause():
                return False
            assert world.attempt() == SUCCEEDED
            before, objects = world.run, _referenced(world)
            old.resume()
            assert old.await_end() in (SUCCEEDED, FENCED_OUT), logs(world)
        finally:
            old.kill()
    assert _without_epoch(world.run) == _without_epoch(before)
    assert _referenced(world) == objects, "what the run document names was changed"
    check_sound(world)
    return True


def both_take_turns(world: World, trainers: Trainers, point: Point) -> bool:
    """The new trainer sleeps in the middle of its work while the old one wakes up and ends."""
    with sampling(TestSampler(world.stores, RUN)):
        old = trainers.start(world, point)
        new: Trainer | None = None
        try:
            if not old.await_pause():
                return False
            new = trainers.start(world, Point(COMMIT, "after"))
            asleep = new.await_pause()
            old.resume()
            codes = [old.await_end()]
            if asleep:
                new.resume()
            codes.append(new.await_end())
        finally:
            for process in (old, new):
                if process is not None:
                    process.kill()
    assert set(codes) <= {SUCCEEDED, FENCED_OUT}, f"{codes}: {logs(world)}"
    assert SUCCEEDED in codes
    check_sound(world)
    return True


def check_sound(world: World) -> None:
    """The run is complete, every step was trained once, and all that it names is there whole."""
    run, stores = world.run, world.stores
    assert world.outcome.kind == "Succeeded"
    assert run.step == STEPS
    world.check_lineage()
    assert [evaluation.step for evaluation in world.evaluations] == [2, 4]
    assert len(world.newest("metrics.jsonl").splitlines()) == STEPS
    assert world.report()["steps"] == STEPS
    report = audit.audit(stores, RUN)
    assert report.good, report.findings
    assert run.policy is not None
    assert run.durable is not None
    for pointer in (run.policy, run.durable):
        with tempfile.TemporaryDirectory() as folder:
            artifacts.download(
                stores.objects,
                Path(folder),
                prefix=pointer.prefix,
                manifest_sha256=pointer.manifest_sha256,
            )
    for record in stores.policies.of_run(RUN):
        # One that was replaced may catalogue what it never came to publish.
        published = record.epoch == run.policy.epoch
        assert not published or stores.objects.list(record.prefix), (
            f"policy {record.version} lost its objects"
        )


def logs(world: World) -> str:
    """The last words of the run's trainers."""
    logs = sorted(world.folder.glob("trainer-*.log"))
    return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)


def _without_epoch(run: Run) -> Run:
    """A trainer that finds a run complete takes an epoch, and nothing else changes."""
    return run.model_copy(update={"epoch": 0, "trainers": 0, "phase": ""})


def _referenced(world: World) -> dict[str, str]:
    """Entity tags of the objects that the run document leads to, and the trained tasks' states."""
    run, objects = world.run, world.stores.objects
    assert run.policy is not None
    assert run.durable is not None
    _, final = split_uri(world.outcome.final_model)
    state = {
        stored_object.key: stored_object.etag
        for prefix in (run.policy.prefix, run.durable.prefix, final)
        for stored_object in objects.list(prefix)
    }
    trained = {
        task for batch in world.stores.batches.lineage(run.head_batch) for task in batch.tasks
    }
    for task in scan(world.stores.mongo, Task.collection, RUN, fields=["queue", "state"]):
        if task["_id"] in trained:
            state[task["_id"]] = f"{task['queue']} {task['state']}"
    return state
