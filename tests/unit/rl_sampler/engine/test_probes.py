"""Probes answer anyone who reaches the pod, so they show no error's text."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.probes import Probes
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving

CANARY = "mongodb://user:canary@host/?x=canary"


def ready(*topics: str) -> tuple[int, str]:
    """Status and text of ``/ready`` with problems that contain a secret."""
    problems = Problems()
    for topic in topics:
        problems.note(topic, f"no answer from {CANARY}")
    probes = Probes(
        serving=Serving(),
        health=Mock(spec=EngineHealth),
        problems=problems,
        registry=CollectorRegistry(),
    )
    answer = asyncio.run(probes.ready(make_mocked_request("GET", "/ready")))
    return answer.status, str(answer.text)


def test_ready_names_the_problems_without_their_texts() -> None:
    wanted = "problems: bucket, store; their texts are in the log\n"
    assert ready("store", "bucket") == (503, wanted)


def test_ready_waits_without_a_problem() -> None:
    assert ready() == (503, "waiting for engine and policy\n")


def test_engine_live_does_not_show_why_the_engine_must_be_restarted() -> None:
    health = EngineHealth(startup_seconds=1, now=0)
    health.request_restart(f"unknown weights of {CANARY}")
    probes = Probes(
        serving=Serving(), health=health, problems=Problems(), registry=CollectorRegistry()
    )
    answer = asyncio.run(probes.engine_live(make_mocked_request("GET", "/engine-live")))
    assert (answer.status, "canary" in str(answer.text)) == (503, False)
