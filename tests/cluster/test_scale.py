"""SamplerPools are scaled as everything else is: by ``kubectl scale``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rl_console.demo.settings import DemoSettings
from rl_console.jobs import PoolObject
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until

NAME = "scaled"
POOL = f"{NAME}-main"


@pytest.fixture(scope="module")
def pool(lab: Lab, settings: DemoSettings) -> Iterator[str]:
    """A pool of a job whose samplers register, but never find a scorer of that name.

    An image of the user's own may have it: the job is not refused before they register.
    """
    unknown = [{"kind": "Telepathy"}]
    image = settings.images["sampler"]
    lab.apply(short_job(NAME, reward__scorers=unknown, samplers__0__template__image=image))
    until(lambda: lab.cluster.pools(lab.namespace, NAME), what="the pool")
    yield POOL
    lab.delete("rljob", NAME)


def seen(lab: Lab) -> PoolObject:
    return lab.cluster.pools(lab.namespace, NAME)[0]


def test_pods_follow_the_scale(pool: str, lab: Lab) -> None:
    until(lambda: len(lab.pods(NAME)) == 1, what="the first pod")
    lab.kubectl("scale", "samplerpool", pool, "--replicas=2")
    until(lambda: len(lab.pods(NAME)) == 2, what="a second pod")
    until(lambda: seen(lab).status.replicas == 2, what="the pool's status")
    until(lambda: lab.job(NAME).status.samplers.desired == 2, what="the job's status")
    lab.kubectl("scale", "samplerpool", pool, "--replicas=0")
    until(lambda: lab.pods(NAME) == [], what="all pods to be gone")
    assert seen(lab).replicas == 0


def test_the_scale_has_a_selector_for_autoscalers(pool: str, lab: Lab) -> None:
    selector = until(lambda: seen(lab).status.selector, what="the pool's status")
    base = f"/apis/rl-operator.io/v1alpha1/namespaces/{lab.namespace}"
    scale = lab.kubectl("get", "--raw", f"{base}/samplerpools/{pool}/scale")
    assert selector in scale


def test_the_job_does_not_scale_its_pool_back(pool: str, lab: Lab) -> None:
    lab.kubectl("annotate", "rljob", NAME, "touched=yes")
    lab.kubectl("scale", "samplerpool", pool, "--replicas=0")
    lab.kubectl(
        "patch", "rljob", NAME, "--type=merge", "-p", '{"spec":{"lifecycle":{"backoffLimit":1}}}'
    )
    generation = lab.job(NAME).generation
    until(
        lambda: lab.job(NAME).status.observed_generation == generation,
        what="the operator to see the edit",
    )
    assert seen(lab).replicas == 0
