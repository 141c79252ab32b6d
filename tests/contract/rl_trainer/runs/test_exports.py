"""Models that are written on the way, whatever ends the attempts."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from rl_trainer.phases import EVALUATE
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_after, crashing_at
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.waiting import until

CHECKPOINT = {"everySteps": 3, "exportEverySteps": 2}


def exported(world: World) -> dict[str, list[str]]:
    """Names of the files of each complete export, by its folder."""
    root = f"{world.stores.run_prefix(RUN)}exports/"
    keys = [
        stored_object.key.removeprefix(root) for stored_object in world.stores.objects.list(root)
    ]
    folders = itertools.groupby(sorted(keys), key=lambda key: key.rpartition("/")[0])
    by_folder = {name: [key.rpartition("/")[2] for key in held] for name, held in folders}
    return {name: files for name, files in by_folder.items() if "manifest.json" in files}


def test_every_second_model_is_written_with_its_settings(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(steps=6, checkpoint=CHECKPOINT)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    epoch = world.run.epoch
    # The sixth is the final one.
    assert list(exported(world)) == [f"00000002/{epoch}", f"00000004/{epoch}"]
    card = world.get(f"exports/00000002/{epoch}/README.md").decode()
    assert "2 of 6 steps of 4 prompts" in card
    assert '"exportEverySteps": 2' in card
    (tmp_path / "model.safetensors").write_bytes(
        world.get(f"exports/00000002/{epoch}/model.safetensors")
    )
    written = load_file(tmp_path / "model.safetensors")
    policy = loading.load(world.folder / "model", precision="FP32", uri=world.spec.model.uri)
    learner = Learner(policy, world.spec)
    for batch in world.stores.batches.lineage(world.run.head_batch)[:2]:
        learner.update(world.samples(batch), step=batch.step)
    assert all(
        torch.equal(parameter, written[name]) for name, parameter in learner.parameters.items()
    )


@pytest.mark.soak
def test_what_a_replaced_trainer_began_to_export_is_deleted(make_world: MakeWorld) -> None:
    """It went on writing beside its successor, which did not wait for it, and then it ended."""
    world = make_world(steps=4, checkpoint=CHECKPOINT)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    first = world.run.epoch
    later = 2 * first
    prefix, objects = world.stores.run_prefix(RUN), world.stores.objects
    for name in ("exports/00000002/0/config.json", "final/0/config.json"):
        objects.put(f"{prefix}{name}", b"{}")
    objects.put(f"{prefix}exports/00000002/0/adapter/manifest.json", b"{}")
    objects.put(f"{prefix}exports/00000002/{later}/config.json", b"{}")
    taken = world.stores.runs.take_epoch(RUN)
    world.stores.runs.clear_outcome(RUN, epoch=taken.epoch)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    folders = {
        stored_object.key.removeprefix(prefix).rpartition("/")[0]
        for root in ("exports/", "final/")
        for stored_object in objects.list(prefix + root)
    }
    assert folders == {
        f"exports/00000002/{first}",
        f"exports/00000002/{later}",
        f"final/{world.run.epoch}",
    }


def crash_before_the_export(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin an attempt that ends once step 1 is durable, before its evaluation and export."""

    def durable() -> bool:
        return world.run.durable is not None

    durable_first = partial(until, durable, what="the checkpoint of step 1")
    with (
        pytest.raises(Crashed),
        crashing_at(f"{EVALUATE} begins", monkeypatch, once=durable_first),
    ):
        world.attempt()


def test_a_resumed_attempt_writes_the_export_of_its_durable_step(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint waits neither for the evaluation nor for the export of its step."""
    world = make_world(steps=2, checkpoint={"everySteps": 1, "exportEverySteps": 1})
    with sampling(TestSampler(world.stores, RUN)):
        crash_before_the_export(world, monkeypatch)
        assert (world.run.step, exported(world)) == (1, {})
        assert world.attempt() == 0
    assert list(exported(world)) == [f"00000001/{world.run.epoch}"]


def test_an_export_of_a_time_that_a_backup_took_back_is_replaced(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that crashed before its export leaves another time's export in its place."""
    world = make_world(steps=2, checkpoint={"everySteps": 1, "exportEverySteps": 1})
    prefix = f"{world.stores.run_prefix(RUN)}exports/00000001"
    with sampling(TestSampler(world.stores, RUN)):
        crash_before_the_export(world, monkeypatch)
        trained_by = world.run.epoch
        world.stores.objects.put(f"{prefix}/{trained_by - 1}/manifest.json", b"{}")
        assert world.attempt() == 0
    assert world.run.epoch > trained_by
    assert list(exported(world)) == [f"00000001/{world.run.epoch}"]


@pytest.mark.soak
def test_exports_are_complete_after_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=6, checkpoint=CHECKPOINT)
    with sampling(TestSampler(world.stores, RUN)):
        for commands in (90, 130, 170):
            with crashing_after(commands, monkeypatch), contextlib.suppress(Crashed):
                world.attempt()
        assert world.attempt() == 0
    assert {name.partition("/")[0] for name in exported(world)} == {"00000002", "00000004"}
