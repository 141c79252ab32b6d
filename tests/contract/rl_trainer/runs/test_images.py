"""Supervised fine-tuning of a vision-language model on images that records name in every form."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rl_contracts.audit import run as run_audit
from rl_contracts.documents.arrays import unpack_int32
from rl_contracts.documents.task import ImagePart
from rl_contracts.stores.files.images import ImageStore
from rl_trainer.rollouts.demonstrations import Demonstrations
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_vision import IMAGE, START, STOP, picture, save_seeing

SIDE = 28
STEPS, PER_STEP = 1, 4


def record(number: int, image: str) -> str:
    content = [{"type": "image", "image": image}, {"type": "text", "text": str(number)}]
    chat = [{"role": "user", "content": content}, {"role": "assistant", "content": "7"}]
    return json.dumps({"id": f"r{number}", "chat": chat}) + "\n"


def seeing(world: World) -> World:
    """The same run with a vision-language model, and images in its records."""
    objects = world.stores.objects
    for path in save_seeing(world.folder / "seeing").iterdir():
        objects.put_file(f"{objects.prefix}seeing/{path.name}", path)
    for name in ("wide.png", "wide #1?.png"):
        objects.put(f"{objects.prefix}photos/{name}", picture(SIDE, 3 * SIDE))
    jpeg = base64.b64encode(picture(70, 50, kind="JPEG")).decode()
    sources = (
        "photos/wide.png",
        f"s3://{objects.bucket}/{objects.prefix}photos/wide #1?.png",
        f"data:image/jpeg;base64,{jpeg}",
        "photos/missing.png",
        "photos/wide.png",
    )
    lines = "".join(record(number, source) for number, source in enumerate(sources))
    objects.put(f"{objects.prefix}train.jsonl", lines.encode())
    given = world.spec.model_dump(by_alias=True)
    del given["samplers"], given["reward"], given["weightSync"]
    given["model"] = {"uri": f"s3://{objects.bucket}/{objects.prefix}seeing"}
    given["data"]["train"][0]["columns"] = {"messages": "chat"}
    given["data"]["validation"] = []
    given["data"] |= {"images": {"maxPixels": 8 * SIDE * SIDE}, "onBadRecord": "Skip"}
    given["agent"] = {"sampling": {"maxContextTokens": 48, "maxTokensPerTurn": 24}}
    given["algorithm"] = {"objective": "SFT"}
    world.spec = world.spec.model_validate(given)
    world.write_mounts()
    return world


def shown(world: World) -> list[ImagePart]:
    tasks = world.stores.tasks.get([task for batch in _batches(world) for task in batch.tasks])
    return [image for task in tasks.values() for image in task.messages[0].images]


def _batches(world: World) -> list[Any]:
    return world.stores.batches.lineage(world.run.head_batch)


def test_images_of_records_are_stored_once_and_trained(make_world: MakeWorld) -> None:
    world = seeing(make_world(steps=STEPS, promptsPerStep=PER_STEP, promptsPerUpdate=PER_STEP))
    assert world.attempt() == 0, world.outcome

    (summary,) = [each for each in world.run.datasets if each.split == "train"]
    assert (summary.records, summary.skipped) == (4, 1)
    assert "line 4: field 'image 0 of message 0' is not in the bucket" in summary.first_skipped[0]

    store = ImageStore(world.stores.objects, run_prefix=world.stores.run_prefix(RUN))
    images = shown(world)
    assert {(image.width, image.height) for image in images} == {(84, 28), (56, 56)}
    assert len({image.sha256 for image in images}) == 2
    assert len(world.stores.objects.list(f"{world.stores.run_prefix(RUN)}images/")) == 2
    assert all(store.get(image.sha256) for image in images)

    (rollouts,) = world.trained()
    for rollout in rollouts:
        (span,) = rollout.images
        tokens = unpack_int32(rollout.tokens)
        count = (span.width // SIDE) * (span.height // SIDE)
        assert tokens[span.start - 1 : span.end + 1] == [START, *[IMAGE] * count, STOP]
    assert run_audit.audit(world.stores, RUN).good

    final, before = world.final_weights(), load_file(world.folder / "seeing/model.safetensors")
    assert final.keys() == before.keys()
    moved = {name for name in before if not torch.equal(before[name], final[name])}
    assert moved
    assert not [name for name in moved if name.startswith("visual.")]


def test_a_validation_image_that_is_lost_ends_the_attempt_with_its_reason(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = {"everySteps": 1}
    world = seeing(make_world(steps=1, promptsPerStep=4, promptsPerUpdate=4, evaluation=evaluation))
    given = world.spec.model_dump(by_alias=True)
    objects = world.stores.objects
    objects.put(f"{objects.prefix}photos/other.png", picture(SIDE, 2 * SIDE))
    objects.put(f"{objects.prefix}held.jsonl", record(9, "photos/other.png").encode())
    uri = f"s3://{objects.bucket}/{objects.prefix}held.jsonl"
    columns = {"messages": "chat"}
    given["data"]["validation"] = [{"name": "held", "uri": uri, "columns": columns}]
    world.spec = world.spec.model_validate(given)
    world.write_mounts()
    evaluate = Demonstrations.evaluate

    def lose(*positional: Any, **named: Any) -> Any:
        """As a rule of the bucket does."""
        world.stores.objects.delete_prefix(f"{world.stores.run_prefix(RUN)}images/")
        return evaluate(*positional, **named)

    monkeypatch.setattr(Demonstrations, "evaluate", lose)
    assert world.attempt() == 1
    assert world.outcome is not None
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "EvaluationFailed")
    assert "an image cannot be read" in world.outcome.message


def test_a_training_image_that_is_lost_ends_the_attempt_with_what_to_look_for(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sampler could make another rollout."""
    world = seeing(make_world(steps=STEPS, promptsPerStep=PER_STEP, promptsPerUpdate=PER_STEP))
    collect = Demonstrations.collect

    def lose(*positional: Any, **named: Any) -> Any:
        """As a rule of the bucket does."""
        world.stores.objects.delete_prefix(f"{world.stores.run_prefix(RUN)}images/")
        return collect(*positional, **named)

    monkeypatch.setattr(Demonstrations, "collect", lose)
    assert world.attempt() == 1
    assert world.outcome is not None
    assert (world.outcome.kind, world.outcome.reason) == ("Failed", "StoredDataCorrupt")
    assert "cannot be trained: an image cannot be read" in world.outcome.message
    assert "such as a rule of the bucket" in world.outcome.message
