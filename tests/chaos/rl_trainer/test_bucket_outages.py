"""Outages of one rank's bucket that are long, or do not end: see the contract test."""

from __future__ import annotations

from rl_trainer.attempt import FAILED, SUCCEEDED
from tests.contract.rl_trainer.distributed.test_bucket_outages import (
    PATIENCE_SECONDS,
    STEPS,
    WRITTEN,
    by_relay,
    check_lasting,
    cut_at_first,
    relay,
    world,
    writes,
)
from tests.contract.rl_trainer.distributed.test_team import codes, two_pods
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.network.relay import Relay

__all__ = ["by_relay", "relay", "world"]
AWAY_SECONDS = 20.0


def test_one_attempt_outlives_an_outage_in_everything_that_ranks_write(
    world: World, relay: Relay, by_relay: dict[str, str]
) -> None:
    left = cut_at_first(relay, WRITTEN, seconds=AWAY_SECONDS)
    with sampling(TestSampler(world.stores, RUN)), two_pods(world, other=by_relay) as pair:
        assert codes(pair) == [SUCCEEDED, SUCCEEDED]
    assert left == []
    assert (world.run.trainers, world.run.step) == (1, STEPS)
    assert world.run.durable is not None
    assert world.run.durable.step == STEPS
    exported = world.stores.objects.list(f"{world.stores.run_prefix(RUN)}exports/")
    assert any(each.key.endswith("manifest.json") for each in exported)


def test_an_outage_that_lasts_in_a_checkpoint_has_the_reason_of_one_on_rank_0(
    world: World, relay: Relay, by_relay: dict[str, str]
) -> None:
    relay.refuses = lambda line: writes(line, "/checkpoints/")
    with (
        sampling(TestSampler(world.stores, RUN)),
        two_pods(world, other=by_relay, patience_seconds=PATIENCE_SECONDS) as pair,
    ):
        assert codes(pair) == [FAILED, FAILED]
    check_lasting(world, "/checkpoints/")
