"""Trackers beside a run: what they leave in the bucket, and that none of them can stop it."""

from __future__ import annotations

import json

from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


def kept(world: World) -> list[str]:
    root = f"{world.stores.run_prefix(RUN)}tracking/"
    return sorted(one.key.removeprefix(root) for one in world.stores.objects.list(root))


def test_files_are_kept_and_a_server_that_is_down_stops_nothing(make_world: MakeWorld) -> None:
    world = make_world(steps=3, tracking={"tensorBoard": True, "mlflow": NOBODY, "samples": 2})
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    names = kept(world)
    assert [one for one in names if "samples" in one] == [
        f"1/samples/{step:08d}.jsonl" for step in (1, 2, 3)
    ]
    events = [one for one in names if one.startswith("1/TensorBoard/events.out.tfevents.")]
    assert any(b"reward/mean" in world.get(f"tracking/{one}") for one in events)
    shown = [json.loads(line) for line in world.get(f"tracking/{names[-1]}").splitlines()]
    trained = {one.id: one.reward for one in world.trained()[2]}
    assert len(shown) == 2
    assert all(trained[one["rollout"]] == one["reward"] for one in shown)


def test_metrics_tell_extremes_parts_staleness_and_phases(make_world: MakeWorld) -> None:
    world = make_world(steps=3)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert kept(world) == []
    for line, rollouts in zip(
        world.newest("metrics.jsonl").splitlines(), world.trained(), strict=True
    ):
        metrics = json.loads(line)
        rewards = [one.reward for one in rollouts]
        assert (metrics["reward_min"], metrics["reward_max"]) == (min(rewards), max(rewards))
        assert sum(metrics["staleness"].values()) == len(rollouts)
        assert metrics["ratio_min"] <= metrics["ratio_max"]
        assert {"wait", "form", "annotate", "update"} <= set(metrics["seconds"])
        assert metrics["tokens_per_second"] > 0
        assert metrics["mfu"] is None  # a processor's peak is not known


def test_credentials_are_taken_from_a_secret_alone(make_world: MakeWorld) -> None:
    world = make_world(tracking={"wandb": "Online", "secretName": "keys"})
    assert world.attempt() == 2
    outcome = world.outcome
    assert (outcome.field, outcome.value) == ("spec.training.tracking.secretName", "keys")
    assert outcome.reason == "CredentialMissing"
    trainer = {"env": [{"name": "WANDB_API_KEY", "value": "hidden"}]}
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"trainer": trainer}
    )
    world.write_mounts()
    assert world.attempt() == 2
    outcome = world.outcome
    assert (outcome.field, outcome.reason) == ("spec.trainer.env", "CredentialInSpec")
    assert "hidden" not in outcome.model_dump_json()
