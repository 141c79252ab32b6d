"""Which pods of single episodes are used up."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.pools import used_pods
from rl_operator.render.samplers.programs import COMPONENT
from rl_operator.state.pod import Container, Pod
from rl_sampler.user_code.programs import single_use
from tests.unit.rl_operator.builders import a_pod


def pod(code: int | None = None, **changes: Any) -> Pod:
    containers = (Container(name="prepare", exit_code=0), Container(name=COMPONENT, exit_code=code))
    return a_pod("program", containers=containers, **changes)


@pytest.mark.parametrize(
    ("candidate", "goes"),
    [
        (pod(), False),
        (pod(ready=False), False),
        (pod(single_use.EPISODE_ENDED), True),
        (pod(single_use.POD_USED), True),
        (pod(single_use.EPISODE_ENDED, deleting=True), False),
        (pod(phase="Failed", ready=False), True),
    ],
    ids=["free", "claimed", "after its episode", "started again", "going", "evicted"],
)
def test_a_pod_goes_once_its_episode_has_ended(candidate: Pod, goes: bool) -> None:
    assert used_pods.used([candidate]) == ([candidate] if goes else [])


@pytest.mark.parametrize("code", [1, 126, 127, 137])
def test_a_server_that_does_not_start_is_not_replaced_for_ever(code: int) -> None:
    assert not used_pods.used([pod(code)])
