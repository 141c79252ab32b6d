"""A pool's pods: stage the weights, run the engine, run the agent of each run beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rl_contracts import env
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator import kinds, names
from rl_operator.desired import (
    engine,
    hub_access,
    pods,
    sandbox,
    shared_engine,
    tool_secrets,
    user_code,
)
from rl_operator.desired.metadata import labels, owned_by, stamped
from rl_operator.desired.overrides import laid_over
from rl_operator.desired.shared_engine import Part, Seat
from rl_operator.metadata import Meta
from rl_operator.settings import Images

Manifest = dict[str, Any]

AGENT_PORT = 8080
RELAY_PORT = 8082
"""The job's NetworkPolicy lets only its own pods reach it."""
CHAT_PORT = 8083
"""The agent's, on loopback: for ``kubectl port-forward``."""
END_SECONDS = 5
"""For the agent to hand back what did not finish while it drained."""
ROLLOUT_GRACE_SECONDS = 600
"""For scheduling and image pulls, on top of the engine's own start."""
AGENT_REQUESTS = {"cpu": "50m", "memory": "256Mi"}


def render(
    pool: Meta,
    spec: SamplerPoolSpec,
    *,
    job: Meta,
    job_spec: RLJobSpec,
    replicas: int,
    images: Images,
    epoch: int = 0,
    beside: Sequence[tuple[Meta, RLJobSpec]] = (),
) -> Manifest:
    """The Deployment of a pool that serves a job's run, and those of others beside it.

    A shared pool's stays when the run changes, so its pods are selected by the pool alone; the
    epoch says for which assignment this is.
    """
    runs = [(job, job_spec), *beside]
    pod = _pod(pool, spec, runs, images=images)
    identity = sandbox.kept_from(pod) if spec.template.service_account_name else {}
    mine = labels(job=job.name, run=job.run, component="sampler", pool=pool.name)
    mine |= {names.beside(one.run): one.name for one, _ in beside}
    chosen = selector(pool.name, "" if spec.shared else job.run)
    assigned = {names.ASSIGNMENT_ANNOTATION: str(epoch)} if spec.shared else {}
    return stamped(
        {
            "apiVersion": kinds.DEPLOYMENT.api_version,
            "kind": kinds.DEPLOYMENT.name,
            "metadata": {
                "name": pool.name,
                "namespace": pool.namespace,
                "labels": mine,
                **({"annotations": assigned} if assigned else {}),
                "ownerReferences": owned_by(pool, kinds.SAMPLER_POOL),
            },
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": chosen},
                "progressDeadlineSeconds": spec.template.engine.startup_seconds
                + ROLLOUT_GRACE_SECONDS,
                "revisionHistoryLimit": 1,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {
                        "maxSurge": spec.template.rollout.max_surge,
                        "maxUnavailable": spec.template.rollout.max_unavailable,
                    },
                },
                "template": laid_over(
                    {
                        "metadata": {
                            "labels": mine,
                            **({"annotations": identity} if identity else {}),
                        },
                        "spec": pod,
                    },
                    spec.template.pod_template,
                ),
            },
        }
    )


def pod_template(job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images) -> Manifest:
    """What a pod of a sampler group will be, before its pool is there."""
    manifest = render(
        replace(job, name=names.pool_of(job.name, group)),
        SamplerPoolSpec(job=job.name, template=group.template),
        job=job,
        job_spec=spec,
        replicas=1,
        images=images,
    )
    template: Manifest = manifest["spec"]["template"]
    return template


def emptied(there: Meta, annotations: Mapping[str, str] | None = None) -> Manifest:
    """The change of a Deployment, as it was seen, to 0 pods; its template may say what it likes."""
    metadata: Manifest = {
        "name": there.name, "namespace": there.namespace, "uid": there.uid,
        "resourceVersion": there.resource_version,
    }  # fmt: skip
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": {"replicas": 0}}


def selector(pool: str, run: str) -> dict[str, str]:
    """Labels that select a pool's pods of one run, or where that is empty all of them."""
    return {names.POOL_LABEL: pool, **({names.RUN_LABEL: run} if run else {})}


def _pod(
    pool: Meta, spec: SamplerPoolSpec, runs: Sequence[tuple[Meta, RLJobSpec]], *, images: Images
) -> Manifest:
    seats = [
        Seat(job=job.name, number=number, runs=len(runs)) for number, (job, _) in enumerate(runs)
    ]
    parts = [
        shared_engine.seated(_part(pool, spec, job, job_spec, seat=seat, images=images), seat)
        for seat, (job, job_spec) in zip(seats, runs, strict=True)
    ]
    served = shared_engine.engine(
        engine.container(
            spec, [one.training for _, one in runs], images=images, agent_port=AGENT_PORT
        ),
        seats, weights=engine.WEIGHTS_FOLDER, first_port=AGENT_PORT,
    )  # fmt: skip
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pods.pull_secrets(images),
        "securityContext": pods.pod_security(),
        "terminationGracePeriodSeconds": spec.template.drain.seconds + END_SECONDS,
        # The engine is a native sidecar: it outlives the agents, which hand back what they hold.
        "initContainers": [
            *(one.stage for one in parts), served, *(each for one in parts for each in one.sidecars)
        ],
        "containers": [one.agent for one in parts],
        "volumes": [
            *(each for one in parts for each in one.volumes),
            *shared_engine.volumes(seats),
            {"name": "engine-tmp", "emptyDir": {}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }  # fmt: skip
    alike = selector(pool.name, runs[0][0].run if len(runs) == 1 else "")
    return pods.placed(pod, spec.template, like=alike)


def _part(
    pool: Meta, spec: SamplerPoolSpec, job: Meta, job_spec: RLJobSpec, *, seat: Seat, images: Images
) -> Part:
    """What the pod has of one run."""
    agent = _agent(pool, spec, job, job_spec, seat=seat, images=images)
    stage = {
        key: agent[key] for key in agent if key not in ("livenessProbe", "readinessProbe", "ports")
    } | {"name": "stage", "command": ["python", "-m", "rl_sampler", "stage"]}
    stage = hub_access.reached_by(stage, job_spec)
    if job_spec.weight_sync.transport.relay:
        _relay(agent, stage, seat)
    agent["volumeMounts"] = [*agent["volumeMounts"], *tool_secrets.mounts(job_spec)]
    volumes: list[Manifest] = []
    sidecars: list[Manifest] = []
    if job_spec.code.config_map_ref is not None:
        agent = user_code.read_by(agent)
        volumes.append(user_code.volume(job_spec.code.config_map_ref))
    if job_spec.runs_programs:
        agent = sandbox.reached_by(agent)
        volumes.append(sandbox.volume())
        sidecars.append(sandbox.container(agent, job_spec))
    config = names.spec_config(job.name, job_spec)
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
            {"name": "weights", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ),
    )


def _agent(
    pool: Meta, spec: SamplerPoolSpec, job: Meta, job_spec: RLJobSpec, *, seat: Seat, images: Images
) -> Manifest:
    port = seat.port(AGENT_PORT)
    told = {
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
        **seat.told(),
        env.DRAIN_SECONDS: str(spec.template.drain.seconds),
        env.TOOL_SECRETS_FOLDER: tool_secrets.FOLDER,
        env.ENDPOINT_SECRETS_FOLDER: tool_secrets.ENDPOINTS_FOLDER,
        "HOME": pods.TMP,
    }
    return {
        "name": "agent",
        "image": spec.template.image or images.sampler,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "rl_sampler", "serve"],
        "env": [
            *pods.environment(told, spec.template.env),
            _from_pod(env.POD_NAME, "metadata.name"),
            _from_pod(env.POD_UID, "metadata.uid"),
        ],
        "ports": [{"name": seat.named("http"), "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": dict(AGENT_REQUESTS)},
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


def _relay(agent: Manifest, stage: Manifest, seat: Seat) -> None:
    """Tell agent and init container of the relay, and open its port."""
    port = seat.port(RELAY_PORT)
    agent["ports"] = [
        *agent["ports"],
        {"name": seat.named("relay"), "containerPort": port, "protocol": "TCP"},
    ]
    for container in (agent, stage):
        container["env"] = [
            *container["env"],
            {"name": env.RELAY_PORT, "value": str(port)},
            _from_pod(env.POD_IP, "status.podIP"),
        ]


def _from_pod(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
