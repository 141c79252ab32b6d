"""The digest of a run changes with what gets on, not with heartbeats."""

from __future__ import annotations

import dataclasses
from typing import Any

import bson
import pytest

from rl_contracts.documents.sampler import SILENT_SECONDS, SamplerState
from rl_contracts.stores.overview import BEATING, SAMPLING, Overview
from tests.samples.documents import a_run, a_sampler
from tests.unit.rl_operator.builders import NOW

NUMBERS = dict.fromkeys({*BEATING, *SAMPLING} - {"heartbeat_at"}, 17)


def an_overview(run: dict[str, Any], sampler: dict[str, Any], *more: str) -> Overview:
    others = [a_sampler(name, heartbeat_at=NOW).to_mongo() for name in more]
    stored = a_sampler("s", heartbeat_at=NOW, state=SamplerState.READY).to_mongo() | sampler
    return Overview(
        stored_run=bson.encode(a_run(heartbeat_at=NOW).to_mongo() | run),
        stored_samplers=tuple(map(bson.encode, (stored, *others))),
    )


DIGESTS: dict[str, tuple[Overview, float, bool]] = {
    "heartbeats": (an_overview({"heartbeat_at": NOW + 5}, {"heartbeat_at": NOW + 5}), NOW, True),
    "what moves with them": (an_overview({}, NUMBERS), NOW, True),
    "time": (an_overview({}, {}), NOW + SILENT_SECONDS - 1, True),
    "silence": (an_overview({}, {}), NOW + SILENT_SECONDS, False),
    "a step": (an_overview({"step": 3}, {}), NOW, False),
    "a phase": (an_overview({"phase": "Training"}, {}), NOW, False),
    "a version": (an_overview({}, {"version": 9}), NOW, False),
    "a state": (an_overview({}, {"state": "draining"}), NOW, False),
    "tokens": (an_overview({}, {"tokens_per_second": 9.0}), NOW, False),
    "an outage": (an_overview({}, {"unavailable": {"Llm": "503"}}), NOW, False),
    "one more": (an_overview({}, {}, "t"), NOW, False),
    "what nobody can read": (an_overview({}, {"heartbeat_at": None, "state": 7}), NOW, False),
    "there is no run": (Overview(), NOW, False),
}


@pytest.mark.parametrize(("later", "now", "same"), DIGESTS.values(), ids=DIGESTS.keys())
def test_digest_ignores_heartbeats_and_what_moves_with_them(
    later: Overview, now: float, same: bool
) -> None:
    assert (later.digest(now) == an_overview({}, {}).digest(NOW)) is same


def test_digest_does_not_depend_on_an_order() -> None:
    first, second = an_overview({}, {}, "t"), an_overview({}, {}, "t")
    turned = dataclasses.replace(second, stored_samplers=second.stored_samplers[::-1])
    assert first.digest(NOW) == turned.digest(NOW)
