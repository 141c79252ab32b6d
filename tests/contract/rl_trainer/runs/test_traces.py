"""What a trainer adds to the traces of rollouts."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from rl_contracts.tracing import EXPORTER, Ids
from tests.contract import otlp
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[otlp.Receiver]:
    monkeypatch.syspath_prepend(str(otlp.exporter_packages()))
    with otlp.receiving() as receiver:
        yield receiver


def test_training_and_publication_join_the_trace_of_each_rollout(
    make_world: MakeWorld, receiver: otlp.Receiver
) -> None:
    traces = {"endpoint": receiver.url, "share": 0.5}
    world = make_world(steps=2, tracking={"traces": traces})
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    expected = set()
    for step, rollouts in enumerate(world.trained(), start=1):
        for rollout in rollouts:
            ids = Ids.of(rollout.id)
            spans = receiver.of(ids.trace)
            if ids.trace & (1 << 64) - 1 >= 1 << 63:
                assert spans == {}, "not of the share"
                continue
            expected.add(ids.trace)
            (train,) = spans["train"]
            assert (train.parent, train.facts["rl.step"]) == (ids.span, step)
            assert train.service == "rl-trainer"
            assert train.end > train.start
            if step == 1:
                (publish,) = spans["publish"]
                assert publish.parent == ids.span
                assert publish.end >= train.end
                assert publish.facts["rl.version"] == 2
    assert expected, "half of the rollouts"
    assert {span.trace for span in receiver.spans} == expected


def test_an_image_without_the_packages_is_refused(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    world = make_world(tracking={"traces": {"endpoint": "http://127.0.0.1:1/v1/traces"}})
    assert world.attempt() == 2
    outcome = world.outcome
    assert (outcome.field, outcome.reason) == ("spec.training.tracking.traces", "OptionUnusable")
    assert "opentelemetry-exporter-otlp-proto-http" in outcome.remedy


@pytest.mark.soak
def test_a_receiver_that_is_down_stops_nothing(
    make_world: MakeWorld, receiver: otlp.Receiver
) -> None:
    world = make_world(steps=1, tracking={"traces": {"endpoint": "http://127.0.0.1:1/v1/traces"}})
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert receiver.spans == []
