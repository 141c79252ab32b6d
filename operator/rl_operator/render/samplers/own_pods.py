"""Programs and environments that run in pods of their own beside a pool's samplers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render.pool import future_pool
from rl_operator.render.samplers import environments, programs

Manifest = dict[str, Any]


def names_in(pool: str, spec: RLJobSpec, *, ours: str) -> frozenset[str]:
    """Names of the Services of a pool's pods for a job, none where it wants none.

    What keeps the pods has the same names.

    ``ours``: the image of its samplers, which is that of a program without one of its own.
    """
    program = programs.program_of(spec)
    if program is not None and program.single_use:
        images = programs.images_of(program, spec, ours=ours)
        return frozenset(names.episodes(pool, image) for image in images)
    name = _name_in(pool, spec)
    return frozenset([name] if name else [])


def keeper(spec: RLJobSpec) -> kinds.Kind:
    """The kind that keeps as many of these pods as are wanted."""
    program = programs.program_of(spec)
    sandboxed = program is not None and program.sandboxed
    return kinds.SANDBOX_WARM_POOL if sandboxed else kinds.DEPLOYMENT


def template_of_sandboxes(
    job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images
) -> Manifest | None:
    """The SandboxTemplate of a sampler group before its pool exists; None where it has none."""
    if keeper(spec) != kinds.SANDBOX_WARM_POOL:
        return None
    pool, of_pool = future_pool(job, group)
    listed = programs.objects(pool, of_pool, job=job, job_spec=spec, size=0, images=images)
    return next(each for each in listed if each["kind"] == kinds.SANDBOX_TEMPLATE.name)


def _name_in(pool: str, spec: RLJobSpec) -> str:
    """Name of the NetworkPolicy of all of them; empty where there are none."""
    if programs.program_of(spec) is not None:
        return names.programs(pool)
    return names.environments(pool) if environments.environment_of(spec) is not None else ""


def field_of(spec: RLJobSpec) -> str:
    """The section of the spec that brings such pods; empty where none does."""
    if programs.program_of(spec) is not None:
        return "spec.agent.program"
    return "spec.agent.environment" if environments.environment_of(spec) is not None else ""


def beside(
    pool: Meta,
    spec: SamplerPoolSpec,
    *,
    job: Meta,
    job_spec: RLJobSpec,
    size: int,
    images: Images,
    unserved: bool = False,
) -> list[Manifest]:
    """The objects for a pool of ``size`` samplers; none where the job has no such pods.

    ``unserved``: as of ``Beside.deployment``.
    """
    return [
        manifest
        for module in (programs, environments)
        for manifest in module.objects(
            pool, spec, job=job, job_spec=job_spec, size=size, images=images, unserved=unserved
        )
    ]


def not_wanted(
    pool: Meta, spec: RLJobSpec, *, ours: str, had: Collection[str] = ()
) -> list[tuple[kinds.Kind, str]]:
    """Kind and name of what a pool that had such pods no longer wants.

    What keeps pods is not among it: it is emptied, and goes with its pool.

    Args:
        pool: the pool.
        spec: of its job.
        ours: image of its samplers.
        had: names of what keeps such pods for it, which Services have too.
    """
    services = {*names.own_pods(pool.name), *had} - names_in(pool.name, spec, ours=ours)
    policy = "" if spec.network_policy == "None" else _name_in(pool.name, spec)
    policies = [name for name in names.own_pods(pool.name) if name != policy]
    return [
        *((kinds.SERVICE, name) for name in sorted(services)),
        *((kinds.NETWORK_POLICY, name) for name in policies),
    ]


def of_group(job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images) -> Manifest:
    """The pods' template of a sampler group of a job with such pods, before its pool exists."""
    pool, of_pool = future_pool(job, group)
    if programs.program_of(spec) is not None:
        return programs.pod_template(pool, of_pool, job=job, job_spec=spec, images=images)
    return environments.pod_template(pool, of_pool, job=job, job_spec=spec, images=images)


def containers_by_sampler(
    job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images
) -> list[Manifest]:
    """What these pods add to the demand of each sampler: containers with names of their own."""
    if not field_of(spec):
        return []
    listed: list[Manifest] = of_group(job, spec, group, images=images)["spec"]["containers"]
    environment = environments.environment_of(spec)
    copies = environment.copies_per_sampler if environment is not None else 1
    return [
        container | {"name": f"{names.BESIDE_CONTAINER}{container['name']}{suffix}"}
        for suffix in ("", *(f"-{number}" for number in range(1, copies)))
        for container in listed
    ]
