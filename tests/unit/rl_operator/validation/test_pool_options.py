"""What a pool that serves several runs at once refuses, by the pool's own field."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.kube.kinds import SAMPLER_POOL, Key
from rl_operator.kube.settings import DEFAULT_RULES
from rl_operator.pools import stalls
from rl_operator.state.snapshot import Pool, PoolSnapshot
from tests.unit.rl_operator.builders import a_meta
from tests.unit.rl_operator.render.test_shared_engine import named, rendered

POD = "spec.template.podTemplate.spec"
CASES: dict[str, tuple[Any, str]] = {
    "an agent": ({"containers": [{"name": "agent-first", "image": "x"}]}, f"{POD}.containers[0]"),
    "the first of all": ({"containers": [{"name": "agent"}]}, f"{POD}.containers[0].name"),
    "a sandbox": (
        {"initContainers": [{"name": "sandbox-second", "command": ["sh"]}]},
        f"{POD}.initContainers[0].name",
    ),
    "a run's Secret": ({"volumes": [{"name": "stores-1"}]}, f"{POD}.volumes[0].name"),
    "a run's token": ({"volumes": [{"name": "tool-calculator-0"}]}, f"{POD}.volumes[0].name"),
    "the model": ({"volumes": [{"name": "model", "emptyDir": {}}]}, f"{POD}.volumes[0].name"),
    "a sidecar": ({"containers": [{"name": "log", "image": "x:1"}]}, ""),
    "a volume": ({"volumes": [{"name": "cache", "emptyDir": {}}]}, ""),
    "a pod in a word": ("near", POD),
    "containers by name": ({"containers": {"agent": {}}}, f"{POD}.containers"),
    "a nameless volume": ({"volumes": [{"name": {}}]}, f"{POD}.volumes[0]"),
}


def stall_of(pod: Any, max_runs: int) -> str:
    spec = SamplerPoolSpec.model_validate(
        {
            "model": {"uri": "s3://rl-data/model"},
            "maxRuns": max_runs,
            "template": {"podTemplate": {"spec": pod}},
        }
    )
    pool = Pool(meta=a_meta("shared"), spec=spec, spec_error="", status=SamplerPoolStatus())
    snapshot = PoolSnapshot(key=Key(SAMPLER_POOL.name, "ns", "shared"), pool=pool, job=None)
    stall = stalls.of_shared(snapshot, spec, DEFAULT_RULES)
    return stall.message if stall is not None else ""


@pytest.mark.parametrize(("pod", "field"), CASES.values(), ids=CASES.keys())
def test_what_each_run_has_of_its_own_is_refused_by_name(pod: Any, field: str) -> None:
    message = stall_of(pod, max_runs=2)
    assert message.startswith(field)
    assert bool(message) == bool(field)


def test_every_name_of_a_pod_is_refused_but_the_engine_s() -> None:
    pod = rendered()["spec"]["template"]["spec"]
    containers = [name for name in named(pod) if name != "engine"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert len(containers) > 4
    for name in containers:
        assert stall_of({"containers": [{"name": name}]}, max_runs=2) != ""
    free = [
        volume for volume in volumes if not stall_of({"volumes": [{"name": volume}]}, max_runs=2)
    ]
    assert free == ["engine-tmp", "shared-memory"]
