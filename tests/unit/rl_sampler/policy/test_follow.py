"""The follower of the published policy, with an engine that must not be asked."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import WeightSync
from rl_sampler.engine.client import Engine
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.weights import Staged, WeightsFolder
from rl_sampler.policy.follow import PolicyFollower
from rl_sampler.policy.stage import Stager


def pointer(epoch: int) -> PolicyPointer:
    return PolicyPointer(version=6, epoch=epoch, step=5, prefix=f"{epoch}/", manifest_sha256="0")


async def test_an_engine_loads_no_second_policy_under_a_number_that_it_has_served() -> None:
    """Running requests may still get tokens that are labelled with the number."""
    lost, new = pointer(1), pointer(2)
    serving = Serving(policy=lost, known={"6": lost})
    problems, counters = Problems(), Counters()
    follower = PolicyFollower(
        engine=cast("Engine", None),
        health=cast("EngineHealth", None),
        stager=cast("Stager", None),
        weights=cast("WeightsFolder", None),
        serving=serving,
        counters=counters,
        problems=problems,
        sync=WeightSync(),
    )
    await follower._load(Staged(pointer=new, folder=Path("w")))
    assert (serving.policy, serving.known, counters.update_failures) == (lost, {"6": lost}, 1)
    assert "is the version of another policy that this engine has served" in str(problems)
