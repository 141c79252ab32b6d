"""Trackers beside a run: what they leave in the bucket, and that none of them can stop it."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rl_contracts import env
from rl_contracts.documents.rollout import RewardPart, Rollout
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


def kept(world: World) -> list[str]:
    root = f"{world.stores.run_prefix(RUN)}tracking/"
    return sorted(
        stored_object.key.removeprefix(root) for stored_object in world.stores.objects.list(root)
    )


@pytest.mark.soak
def test_files_are_kept_and_a_server_that_is_down_stops_nothing(make_world: MakeWorld) -> None:
    world = make_world(steps=3, tracking={"tensorBoard": True, "mlflow": NOBODY, "samples": 2})
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    names = kept(world)
    assert [name for name in names if "samples" in name] == [
        f"{world.run.epoch}/samples/{step:08d}.jsonl" for step in (1, 2, 3)
    ]
    events = [
        name for name in names if name.startswith(f"{world.run.epoch}/TensorBoard/events.out.")
    ]
    assert any(b"reward/mean" in world.get(f"tracking/{event}") for event in events)
    shown = [json.loads(line) for line in world.get(f"tracking/{names[-1]}").splitlines()]
    trained = {rollout.id: rollout.reward for rollout in world.trained()[2]}
    assert len(shown) == 2
    assert all(trained[row["rollout"]] == row["reward"] for row in shown)


EVERYTHING = {
    "groupSize": 4,
    "estimator": {"kind": "GAE"},
    "critic": {},
    "kl": {"coefficient": 0.1},
    "entropyCoefficient": 0.01,
}
"""An algorithm under which a step has every metric."""
PROMISED = {
    "reward": ("reward_mean", "reward_std", "reward_min", "reward_max", "reward_parts"),
    "policy and value loss": ("loss", "value_loss"),
    "KL": ("kl", "kl_coefficient"),
    "entropy": ("entropy",),
    "clip fraction": ("clip_fraction",),
    "ratio extremes": ("ratio_min", "ratio_max"),
    "staleness": ("staleness", "staleness_mean", "staleness_max"),
    "log-prob gap": ("logprob_gap_mean",),
    "gradient norm": ("gradient_norm",),
    "learning rate": ("learning_rate",),
    "speed": ("tokens_per_second", "tokens"),
    "time": ("seconds", "wait_seconds", "train_seconds"),
}
"""What each step tells; ``mfu`` beside it is null on a processor, whose peak is not known."""


def judged(rollout: Rollout) -> Rollout:
    part = RewardPart(scorer="ExactMatch", value=rollout.reward, weight=1.0)
    return rollout.model_copy(update={"parts": [part]})


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    return {
        sample.name.removeprefix("rl_trainer_"): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if not sample.labels
    }


def scraped_at(port: int, step: int) -> dict[str, float] | None:
    scrape = scraped(port)
    return scrape if scrape.get("step", 0.0) >= step else None


def test_a_step_has_all_metrics_and_prometheus_reads_the_same(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, port = make_world(steps=6), free_port()
    changed = world.spec.model_dump(by_alias=True) | {"algorithm": EVERYTHING}
    world.spec = world.spec.model_validate(changed)
    world.write_mounts()
    environment = world.environment | {env.LISTEN_PORT: str(port)}
    monkeypatch.setattr(World, "environment", environment)
    sampler = TestSampler(world.stores, RUN, rest_at=2, spoil=judged)
    with sampling(sampler), ThreadPoolExecutor(1) as executor:
        attempt = executor.submit(world.attempt)
        until(world.at_step(2), what="step 2")
        scrape = until(partial(scraped_at, port, 2), what="a scrape of step 2")
        sampler.rest_at = 0
        assert attempt.result(timeout=HUNG_SECONDS) == 0
    lines = [json.loads(line) for line in world.newest("metrics.jsonl").splitlines()]
    for step in lines:
        for what, names in PROMISED.items():
            assert all(step[name] not in (None, {}) for name in names), (what, step)
        assert "mfu" in step
    step = lines[int(scrape["step"]) - 1]
    same = {
        "reward_mean": "reward_mean",
        "policy_loss": "loss",
        "value_loss": "value_loss",
        "kl_nats": "kl",
        "entropy_nats": "entropy",
        "gradient_norm": "gradient_norm",
        "clipped_tokens_ratio": "clip_fraction",
        "policy_ratio_max": "ratio_max",
        "tokens_per_second": "tokens_per_second",
        "logprob_gap_nats": "logprob_gap_mean",
    }
    assert {name: scrape[name] for name in same} == {name: step[of] for name, of in same.items()}
    until_then = lines[: step["step"]]
    assert scrape["tokens_trained_total"] == sum(line["tokens"] for line in until_then)
    assert scrape["staleness_steps_count"] == sum(line["rollouts"] for line in until_then)


def test_step_metrics_hold_extremes_parts_staleness_and_phases(make_world: MakeWorld) -> None:
    world = make_world(steps=3)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert kept(world) == []
    for line, rollouts in zip(
        world.newest("metrics.jsonl").splitlines(), world.trained(), strict=True
    ):
        metrics = json.loads(line)
        rewards = [rollout.reward for rollout in rollouts]
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
