"""The part of a sampler pod that belongs to one run: its agent and the init container stage."""

from __future__ import annotations

import json
from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_operator.kube import names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import disk, hub_access, pods
from rl_operator.render.samplers import (
    engine,
    environments,
    programs,
    sandbox,
    tool_secrets,
    user_code,
)
from rl_operator.render.samplers.shared_engine import Part, Seat

Manifest = dict[str, Any]

PORT = 8080
RELAY_PORT = 8082
"""The job's NetworkPolicy lets only its own pods reach it."""
CHAT_PORT = 8083
"""Port of the agent's chat on loopback, for ``kubectl port-forward``."""
GATEWAY_PORT = programs.GATEWAY_PORT
"""Port of the API for programs: on loopback, or for the pods that run them."""
REQUESTS = {"cpu": "50m", "memory": "256Mi"}


def part(
    pool: Meta, spec: SamplerPoolSpec, job: Meta, job_spec: RLJobSpec, *, seat: Seat, images: Images
) -> Part:
    """The containers and volumes of one run."""
    agent = _agent(pool, spec, job, job_spec, seat=seat, images=images)
    stage = hub_access.reached_by(_stage(agent), job_spec)
    if job_spec.weight_sync.transport.relay:
        _relay(agent, stage, seat)
    if programs.program_of(job_spec) is not None:
        _opened(agent, seat)
    _named_by_address(agent, stage, job_spec)
    agent["volumeMounts"] = [*agent["volumeMounts"], *tool_secrets.mounts(job_spec)]
    volumes: list[Manifest] = []
    sidecars: list[Manifest] = []
    if job_spec.needs_code_container:
        agent = user_code.reached_by(agent)
        volumes += user_code.volumes(job_spec)
        sidecars.append(user_code.container(agent, job_spec))
    if job_spec.runs_programs:
        agent = sandbox.reached_by(agent)
        volumes.append(sandbox.volume())
        sidecars.append(sandbox.container(agent, job_spec))
    group = names.group(job.name, job_spec, pool.name)
    config = names.spec_config(job.name, job_spec, group)
    sources = spec.template.env_from
    return Part(
        stage=pods.reading(stage, sources),
        agent=pods.reading(agent, sources),
        sidecars=tuple(sidecars),
        volumes=(
            *pods.spec_volumes(config=config, secret=job_spec.storage.secret_name),
            *tool_secrets.volumes(job_spec),
            *hub_access.volumes(job_spec),
            *volumes,
            disk.volume("weights", disk.policies(spec.template)),
            disk.volume("tmp", disk.AGENT_TMP),
        ),
    )


def _agent(
    pool: Meta, spec: SamplerPoolSpec, job: Meta, job_spec: RLJobSpec, *, seat: Seat, images: Images
) -> Manifest:
    port = seat.port(PORT)
    variables = {
        env.NAMESPACE: pool.namespace,
        env.JOB: job.name,
        env.RUN: job.run,
        env.POOL: names.group(job.name, job_spec, pool.name),
        env.SPEC_FILE: pods.SPEC_FILE,
        env.STORES_FOLDER: pods.STORES_FOLDER,
        env.WEIGHTS_FOLDER: seat.folder(engine.WEIGHTS_FOLDER),
        env.ENGINE_URL: f"http://127.0.0.1:{engine.PORT}",
        env.LISTEN_PORT: str(port),
        env.CHAT_PORT: str(seat.port(CHAT_PORT)),
        **_gateway(pool, spec, job, job_spec, seat, images),
        **_environments(pool, job, job_spec),
        **seat.variables(),
        env.DRAIN_SECONDS: str(spec.template.drain.seconds),
        env.TOOL_SECRETS_FOLDER: tool_secrets.FOLDER,
        env.ENDPOINT_SECRETS_FOLDER: tool_secrets.ENDPOINTS_FOLDER,
        "HOME": pods.TMP,
    }
    return {
        "name": "agent",
        "image": pods.sampler_image(spec.template, images),
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "rl_sampler", "serve"],
        "env": [
            *pods.environment(variables, spec.template.env),
            _from_pod(env.POD_NAME, "metadata.name"),
            _from_pod(env.POD_UID, "metadata.uid"),
        ],
        "ports": [{"name": seat.named("http"), "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "livenessProbe": pods.probe("/live", port, delay=10, period=10, failures=6),
        "readinessProbe": pods.probe("/ready", port, delay=0, period=2, failures=2),
        "volumeMounts": [
            *pods.spec_mounts(),
            {"name": "weights", "mountPath": seat.folder(engine.WEIGHTS_FOLDER)},
            {"name": "tmp", "mountPath": pods.TMP},
        ],
    }


def _gateway(
    pool: Meta, spec: SamplerPoolSpec, job: Meta, job_spec: RLJobSpec, seat: Seat, images: Images
) -> dict[str, str]:
    """Where the agent serves the API for programs, and who runs them; nothing without any."""
    if job_spec.agent.program is None:
        return {}
    port = {env.GATEWAY_PORT: str(seat.port(GATEWAY_PORT))}
    program = programs.program_of(job_spec)
    if program is None:
        return port
    ours = pods.sampler_image(spec.template, images)
    all_pods = programs.of_pool(pool, job)
    (first, _), *others = programs.by_image(all_pods, program, job_spec, ours=ours)
    further = {image: each.address for each, image in others}
    of_images = {env.EPISODE_PODS: json.dumps(further)} if further else {}
    return port | {env.PROGRAMS: first.address} | of_images


def _environments(pool: Meta, job: Meta, job_spec: RLJobSpec) -> dict[str, str]:
    """Where the pods of an image of environments are; nothing without an image."""
    environment = environments.environment_of(job_spec)
    if environment is None:
        return {}
    return {env.ENVIRONMENTS: environments.of_pool(pool, job, environment).address}


def _opened(agent: Manifest, seat: Seat) -> None:
    """Open the gateway's port to pods of programs."""
    port = {"name": seat.named("gateway"), "containerPort": seat.port(GATEWAY_PORT)}
    agent["ports"] = [*agent["ports"], port | {"protocol": "TCP"}]


def _stage(agent: Manifest) -> Manifest:
    """The init container that downloads the weights with which the engine starts."""
    kept = {
        key: agent[key] for key in agent if key not in ("livenessProbe", "readinessProbe", "ports")
    }
    return kept | {"name": "stage", "command": ["python", "-m", "rl_sampler", "stage"]}


def _relay(agent: Manifest, stage: Manifest, seat: Seat) -> None:
    """Configure the relay of agent and init container, and open its port."""
    port = seat.port(RELAY_PORT)
    agent["ports"] = [
        *agent["ports"],
        {"name": seat.named("relay"), "containerPort": port, "protocol": "TCP"},
    ]
    for container in (agent, stage):
        container["env"] = [*container["env"], {"name": env.RELAY_PORT, "value": str(port)}]


def _named_by_address(agent: Manifest, stage: Manifest, job_spec: RLJobSpec) -> None:
    """Tell the pod its address, where other pods connect to it."""
    if job_spec.weight_sync.transport.relay or programs.program_of(job_spec) is not None:
        for container in (agent, stage):
            container["env"] = [*container["env"], _from_pod(env.POD_IP, "status.podIP")]


def _from_pod(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
