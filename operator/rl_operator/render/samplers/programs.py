"""Renders the pods that run a job's programs: a Deployment for each pool, as large as the pool.

Each pod has one container of the user's image, without a token, without a Secret but those that the
manifest names for it, and with a digest of the run's key, which agents send. An init container
with the sampler's image makes both the digest and the server that runs the programs. A Service
spreads calls over the pods; a NetworkPolicy lets them reach the samplers' gateway alone.

Pods of single episodes (``runsIn: EpisodePod``) are the same, as many of each image as the manifest
says, and each serves one call: ``pools/used_pods.py`` removes them then. Their Services have no
address of their own: agents try one pod after the other. With ``podsFrom: AgentSandbox`` claims
stand in the place of the Deployments' replicas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_contracts import env
from rl_contracts.spec.agent.program import Program
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import Placement
from rl_operator.kube import names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import disk, pods
from rl_operator.render.samplers import episode_pods, sandboxes, user_code
from rl_operator.render.samplers.beside import REQUESTS, Beside, quota_of, tcp

Manifest = dict[str, Any]

COMPONENT = "program"
GATEWAY_PORT = 8084
"""Of the agents, where programs ask the policy."""
PORT = 8085
FOLDER = "/run/rl-programs"
SERVER = f"{FOLDER}/server"
KEY_DIGEST = f"{FOLDER}/key.sha256"
"""As ``rl_sampler.user_code.program_pod`` writes them."""


def program_of(spec: RLJobSpec) -> Program | None:
    """The program that runs in pods of its own; None where there is none."""
    program = spec.agent.program
    return None if program is None or program.in_sidecar else program


def of_pool(pool: Meta, job: Meta, *, quota: Placement | None = None) -> Beside:
    """The pods of a pool's programs; ``quota``: as of ``Beside``."""
    return Beside(
        pool=pool,
        job=job,
        name=names.programs(pool.name),
        label=names.PROGRAMS_LABEL,
        component=COMPONENT,
        port=PORT,
        quota=quota,
    )


def images_of(program: Program, spec: RLJobSpec, *, ours: str) -> tuple[str, ...]:
    """Images of the program's pods, that of ``agent.program.image`` first; ``ours``: the sampler's.

    A further image that is named twice has pods once.
    """
    first = program.image or spec.code.image or ours
    return tuple(dict.fromkeys((first, *program.images)))


def of_image(of_all: Beside, image: str) -> Beside:
    """The pods of an image that each run one episode."""
    also = {names.IMAGE_LABEL: names.digest(image)}
    return replace(of_all, name=names.episodes(of_all.pool.name, image), also=also)


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
    """The objects of a pool of ``size`` samplers whose programs run in pods of their own.

    ``unserved``: as of ``Beside.deployment``.
    """
    program = program_of(job_spec)
    if program is None:
        return []
    pods_beside = of_pool(pool, job, quota=quota_of(spec, job_spec))
    gateway = {"to": [pods_beside.samplers], "ports": [tcp(GATEWAY_PORT)]}
    is_open = program.network == "Open"
    policy = pods_beside.policy(
        reaches=[gateway], finds_names=is_open or not program.single_use, is_open=is_open
    )
    made = [] if job_spec.network_policy == "None" else [policy]
    count = program.episode_pods if program.single_use and size else size
    ours = pods.sampler_image(spec.template, images)
    for each, image in by_image(pods_beside, program, job_spec, ours=ours):
        template = _template(each, spec, job_spec=job_spec, image=image, images=images)
        if program.sandboxed:
            spare = program.spare
            made.append(each.service(headless=True, only=sandboxes.CLAIMED))
            made.extend(sandboxes.objects(each, template, claims=count, spare=spare))
            continue
        made.append(each.service(headless=program.single_use))
        made.append(each.deployment(template, size=count, unserved=unserved))
    return made


def pod_template(
    pool: Meta, spec: SamplerPoolSpec, *, job: Meta, job_spec: RLJobSpec, images: Images
) -> Manifest:
    """The pods' template, with the first of their images."""
    program = program_of(job_spec)
    assert program is not None
    pods_beside = of_pool(pool, job, quota=quota_of(spec, job_spec))
    ours = pods.sampler_image(spec.template, images)
    each, image = by_image(pods_beside, program, job_spec, ours=ours)[0]
    return _template(each, spec, job_spec=job_spec, image=image, images=images)


def by_image(
    of_all: Beside, program: Program, spec: RLJobSpec, *, ours: str
) -> list[tuple[Beside, str]]:
    """The pods of each image, that of ``agent.program.image`` first; with runsIn Pod the only one.

    Args:
        of_all: as of ``of_pool``.
        program: of the job.
        spec: of the job.
        ours: image of the samplers.
    """
    images = images_of(program, spec, ours=ours)
    if not program.single_use:
        return [(of_all, images[0])]
    return [(of_image(of_all, image), image) for image in images]


def _template(
    pods_beside: Beside,
    spec: SamplerPoolSpec,
    *,
    job_spec: RLJobSpec,
    image: str,
    images: Images,
) -> Manifest:
    program = program_of(job_spec)
    assert program is not None
    container = _container(pods_beside, program, job_spec, image=image)
    init = _init(pods_beside.job, image=pods.sampler_image(spec.template, images))
    volumes = _volumes(job_spec)
    if program.single_use:
        harbor = job_spec.has_harbor_tasks
        container = episode_pods.serving_once(container, harbor=harbor)
        init = episode_pods.marking(init)
        volumes += episode_pods.volumes(harbor=harbor)
    return pods_beside.template(
        container,
        init=[init],
        volumes=volumes,
        drain=spec.template.drain.seconds,
        images=images,
        runtime_class=program.runtime_class_name,
    )


def let_in(job: Meta) -> Manifest:
    """The ingress rule by which agents of a job admit these pods to their gateway."""
    ours = {names.JOB_LABEL: job.name, names.COMPONENT_LABEL: COMPONENT}
    return {"from": [{"podSelector": {"matchLabels": ours}}], "ports": [tcp(GATEWAY_PORT)]}


def _container(pods_beside: Beside, program: Program, spec: RLJobSpec, *, image: str) -> Manifest:
    code = spec.code.config_map_ref
    own = {"HOME": pods.TMP, **({env.CODE_FOLDER: user_code.FOLDER} if code is not None else {})}
    mounts: list[Manifest] = [
        {"name": "programs", "mountPath": FOLDER, "readOnly": True},
        {"name": "tmp", "mountPath": pods.TMP},
    ]
    if code is not None:
        mounts.append({"name": "code", "mountPath": user_code.FOLDER, "readOnly": True})
    return pods_beside.container(program, image=image, variables=own) | {
        "command": ["python3", "-I", "-S", SERVER],
        "args": ["--port", str(PORT), "--key-digest", KEY_DIGEST],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
        "volumeMounts": mounts,
    }


def _init(job: Meta, *, image: str) -> Manifest:
    """The init container that copies the server and makes the digest of the key."""
    variables = {env.RUN: job.run, env.STORES_FOLDER: pods.STORES_FOLDER, "HOME": pods.TMP}
    return {
        "name": "prepare",
        "image": image,
        "command": ["python", "-m", "rl_sampler.user_code.program_pod", FOLDER],
        "env": pods.environment(variables),
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "stores", "mountPath": pods.STORES_FOLDER, "readOnly": True},
            {"name": "programs", "mountPath": FOLDER},
        ],
    }


def _volumes(spec: RLJobSpec) -> list[Manifest]:
    secret = {"secretName": spec.storage.secret_name, "defaultMode": pods.READ_BY_GROUP}
    listed: list[Manifest] = [
        {"name": "stores", "secret": secret},
        disk.in_memory("programs", disk.SMALL),
        disk.volume("tmp", disk.AGENT_TMP),
    ]
    if spec.code.config_map_ref is not None:
        listed.append({"name": "code", "configMap": {"name": spec.code.config_map_ref.name}})
    return listed
