"""Whole episodes in pods of agent-sandbox on the cluster, made by its own controller.

The time of a claim is from the first sight of it until its pod, which stood ready in the warm pool
of 20, has the label by which the Service selects it. The job's trainer, engine and agents and the
start of new spare pods take place on the same machine at the same time, so the times are recorded,
and no bar is asserted. An episode waits for none of it: claims are made ahead of episodes.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator

import pytest
from kubernetes import client, config

from rl_console.demo.settings import DemoSettings
from rl_local import addons
from rl_local.layout import Layout
from rl_operator.kube import names
from tests.chaos.examples.acting import ALL_SECONDS, Stage
from tests.chaos.examples.test_harbor import GROUP_SIZE, NAME, PROMPTS, agent, job, put_tasks
from tests.cluster.chart import switch
from tests.cluster.conftest import rl_local
from tests.cluster.lab import Lab
from tests.kube import agent_sandbox
from tests.kube.sandbox_claims import ClaimWatch, percentile

pytestmark = pytest.mark.timeout(2 * ALL_SECONDS)

PODS, WARM = 4, 20
STEPS = 12
"""So many that a 99th percentile is one of the claims after an episode."""
CONTROLLER = "agent-sandbox-controller"


@pytest.fixture
def sandboxes(lab: Lab, installed: DemoSettings) -> Iterator[None]:
    """agent-sandbox in the cluster, and an operator that may use it."""
    image = json.loads(rl_local("images", CONTROLLER))[CONTROLLER]
    with addons.agent_sandbox(Layout.from_environment(), image):
        for name in agent_sandbox.NAMES:
            lab.await_kind(name)
        switch(installed, "agentSandbox.enabled", on=True)
        yield
        switch(installed, "agentSandbox.enabled", on=False)


@pytest.fixture
def watched(lab: Lab, installed: DemoSettings, sandboxes: None) -> Iterator[ClaimWatch]:
    """The claims of the job."""
    configuration = client.Configuration()
    config.load_kube_config(str(installed.tools.kubeconfig), client_configuration=configuration)
    pods = f"{names.PROGRAMS_LABEL}={names.pool(NAME, 'main')}"
    with (
        client.ApiClient(configuration) as api,
        ClaimWatch(api, lab.namespace, pods=pods) as watch,
    ):
        yield watch


def test_each_episode_has_a_pod_of_its_own_that_stood_ready(
    lab: Lab,
    watched: ClaimWatch,
    stage: Stage,
    installed: DemoSettings,
    record_property: Callable[[str, object], None],
) -> None:
    images = (installed.images["sampler"],)
    with lab.stores() as stores:
        put_tasks(stores, images)
    manifest = job(images)
    program = {"podsFrom": "AgentSandbox", "pods": PODS, "sparePods": WARM}
    manifest["spec"]["agent"]["program"] |= program
    manifest["spec"]["training"] |= {"steps": STEPS, "checkpoint": {"everySteps": STEPS}}
    _, rollouts, run = stage.play([agent(), manifest])
    taken = list(watched.taken().values())

    assert (run.step, len(rollouts)) == (STEPS, STEPS * PROMPTS * GROUP_SIZE)
    with lab.stores() as stores:
        tasks = stores.tasks.get({rollout.task for rollout in rollouts})
    for rollout in rollouts:
        assert rollout.error is None
        assert rollout.program is not None
        assert rollout.program.exit_code == 0
        total = sum(map(int, tasks[rollout.task].example.split("-")))
        assert rollout.reward == float(str(total) in re.findall(r"\d+", rollout.text))
    assert len({each.pod for each in taken}) == len(taken) >= len(rollouts), "no pod serves twice"

    warm = [each.seconds for each in taken if each.was_ready]
    record_property("claims", len(taken))
    record_property("of pods that stood ready", len(warm))
    record_property("median_seconds", round(statistics.median(warm), 3))
    record_property("p99_seconds", round(percentile(warm, 0.99), 3))
    assert len(taken) - len(warm) <= PODS, "the first claims alone waited for the start of a pod"
