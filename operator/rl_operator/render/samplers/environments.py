"""Renders the pods that run an image of environments: ``copies`` of them for each sampler.

Each pod has one container of the user's image, which sees nothing of the run. A headless Service
gives agents the addresses of all ready pods: a server has room for few sessions, often for one, so
an agent must be able to try the next one. A NetworkPolicy lets samplers alone reach them.
"""

from __future__ import annotations

from typing import Any

from rl_contracts.spec.agent.environment import Environment
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import Placement
from rl_operator.kube import names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import disk, pods
from rl_operator.render.samplers.beside import Beside, quota_of

Manifest = dict[str, Any]

COMPONENT = "environment"
HEALTH = "/health"
START_SECONDS = 600
"""A server may read data before it answers."""
PROBE_SECONDS = 2
HUNG_SECONDS = 300
"""A server that has not answered for so long is started again: a busy one answers late."""


def environment_of(spec: RLJobSpec) -> Environment | None:
    """The environment with an image; None where there is none."""
    environment = spec.agent.environment
    return None if environment is None or environment.image is None else environment


def of_pool(
    pool: Meta, job: Meta, environment: Environment, *, quota: Placement | None = None
) -> Beside:
    """The pods of a pool's environments; ``quota``: as of ``Beside``."""
    return Beside(
        pool=pool,
        job=job,
        name=names.environments(pool.name),
        label=names.ENVIRONMENTS_LABEL,
        component=COMPONENT,
        port=environment.server_port,
        quota=quota,
    )


def objects(
    pool: Meta,
    spec: SamplerPoolSpec,
    *,
    job: Meta,
    job_spec: RLJobSpec,
    size: int,
    images: Images,
    unserved: bool = False,
) -> list[Manifest]:
    """The objects of a pool of ``size`` samplers; none where the job has no such image.

    ``unserved``: as of ``Beside.deployment``.
    """
    environment = environment_of(job_spec)
    if environment is None:
        return []
    pods_beside = of_pool(pool, job, environment, quota=quota_of(spec, job_spec))
    template = pod_template(pool, spec, job=job, job_spec=job_spec, images=images)
    policy = pods_beside.policy(is_open=environment.network == "Open")
    return [
        *([] if job_spec.network_policy == "None" else [policy]),
        pods_beside.service(headless=True),
        pods_beside.deployment(
            template, size=size * environment.copies_per_sampler, unserved=unserved
        ),
    ]


def pod_template(
    pool: Meta, spec: SamplerPoolSpec, *, job: Meta, job_spec: RLJobSpec, images: Images
) -> Manifest:
    """The pods' template."""
    environment = environment_of(job_spec)
    assert environment is not None
    drain = spec.template.drain.seconds
    pods_beside = of_pool(pool, job, environment, quota=quota_of(spec, job_spec))
    return pods_beside.template(
        _container(pods_beside, environment, drain=drain),
        volumes=[disk.volume("tmp", disk.AGENT_TMP)],
        drain=drain,
        images=images,
    )


def _container(pods_beside: Beside, environment: Environment, *, drain: int) -> Manifest:
    port = environment.server_port
    rendered = pods_beside.container(
        environment, image=environment.image, variables={"HOME": pods.TMP}
    ) | {
        **({"command": list(environment.command)} if environment.command else {}),
        "startupProbe": _probe(port, failures=START_SECONDS // PROBE_SECONDS),
        "readinessProbe": _probe(port, failures=3),
        "livenessProbe": _probe(port, failures=HUNG_SECONDS // PROBE_SECONDS),
        "volumeMounts": [{"name": "tmp", "mountPath": pods.TMP}],
    }
    if drain:  # episodes of samplers that are stopped at the same time may finish
        rendered["lifecycle"] = {"preStop": {"sleep": {"seconds": drain}}}
    return rendered


def _probe(port: int, *, failures: int) -> Manifest:
    return pods.probe(HEALTH, port, delay=0, period=PROBE_SECONDS, failures=failures)
