"""The registrations of the largest fleet fit into one answer."""

from __future__ import annotations

import json

import bson

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.reader import ANSWER_BYTES
from rl_contracts.stores.overview import EMPTY, MOST_SAMPLERS, REQUIRED, Overview
from rl_reader import runs
from tests.samples.documents import a_run, a_sampler

RUN_ID = "11111111-2222-3333-4444-555555555555"


def typical(number: int) -> Sampler:
    """As the agent of a pod writes it."""
    return a_sampler(
        id=f"{RUN_ID}.sampler.00000000-0000-0000-0000-{number:012d}",
        run=RUN_ID,
        pod=f"arithmetic-main-7c9d8f6b5-{number:05d}",
        relay_url="http://10.0.0.1:8082",
        relay_key="0123456789abcdef",
        engine="sglang 0.5.23",
        scorers=["ExactMatch", "Math"],
        version=123,
        step=122,
        registered_at=1795258573.7470758,
        heartbeat_at=1795258573.7470758,
        tokens_per_second=1234.567890123,
        tokens_generated=123456789,
        groups_running=8,
        groups_done=12345,
        updates=123,
        pause_seconds_last=0.1234567,
    )


def overview_of(samplers: list[Sampler]) -> Overview:
    return Overview(
        stored_run=bson.encode(a_run(id=RUN_ID).to_mongo()),
        stored_samplers=tuple(bson.encode(sampler.to_mongo()) for sampler in samplers),
    )


def test_ten_thousand_registrations_fit_into_an_answer() -> None:
    known = overview_of([typical(number) for number in range(MOST_SAMPLERS)])
    answered = runs._documents(runs._Read(now=1.0, overviews={RUN_ID: known}))
    assert answered[RUN_ID].problem == ""
    whole = json.dumps({"runs": {RUN_ID: answered[RUN_ID].model_dump()}})
    assert len(whole) <= ANSWER_BYTES


def test_a_shortened_registration_is_parsed_to_the_same_but_for_its_relay() -> None:
    new = a_sampler(state=SamplerState.STARTING)
    for sampler in (typical(1), new, typical(2).model_copy(update={"drained": True})):
        (short,) = overview_of([sampler]).plain()["samplers"]
        parsed = Sampler.from_mongo(short)
        assert parsed == sampler.model_copy(update={"relay_url": "", "relay_key": ""})


def test_only_defaults_are_left_out() -> None:
    for name, field in Sampler.model_fields.items():
        if name not in REQUIRED and name != "id":
            assert field.get_default(call_default_factory=True) in EMPTY, name
