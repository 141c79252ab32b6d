"""Renders a pool's Deployment: pods with one engine and the agent of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.pod_overlay import laid_over
from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import disk, pods
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.pool import future_pool
from rl_operator.render.samplers import agents, engine, engine_key, sandbox, shared_engine
from rl_operator.render.samplers.shared_engine import Seat

Manifest = dict[str, Any]

END_SECONDS = 5
"""Time for the agent to return unfinished tasks after the drain."""
ROLLOUT_GRACE_SECONDS = 600
"""Time for scheduling and image pulls, in addition to the engine's start."""
ALL_PODS = "100%"


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
    unserved: bool = False,
) -> Manifest:
    """The Deployment of a pool that serves a job's run, and those of the jobs in ``beside``.

    The Deployment of a shared pool stays when the run changes, so its selector names the pool only;
    the epoch identifies the assignment for which it is rendered. While its runs have no policy
    (``unserved``), an edit replaces all pods at once.
    """
    runs = [(job, job_spec), *beside]
    pod = _pod(pool, spec, runs, images=images)
    annotations = {names.SPECS_ANNOTATION: _read_by(pool, runs), **sandbox.kept_from(pod)}
    mine = labels(job=job.name, run=job.run, component="sampler", pool=pool.name)
    mine |= {names.beside(other.run): other.name for other, _ in beside}
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
                **_rollout(spec, unserved=unserved),
                "template": laid_over(
                    {
                        "metadata": {"labels": mine, "annotations": annotations},
                        "spec": pod,
                    },
                    spec.template.pod_template,
                ),
            },
        }
    )


def _rollout(spec: SamplerPoolSpec, *, unserved: bool) -> Manifest:
    """How the Deployment replaces its pods, and when it reports that it makes no progress.

    Without a policy no pod gets ready: the Deployment would replace its first pods, wait for them,
    and keep the others, which have the earlier template.
    """
    rollout = spec.template.rollout
    return {
        "progressDeadlineSeconds": spec.template.engine.startup_seconds + ROLLOUT_GRACE_SECONDS,
        "revisionHistoryLimit": 1,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {
                "maxSurge": rollout.max_surge,
                "maxUnavailable": ALL_PODS if unserved else rollout.max_unavailable,
            },
        },
    }


def _read_by(pool: Meta, runs: Sequence[tuple[Meta, RLJobSpec]]) -> str:
    """The ConfigMaps from which a pool's pods read the specs of their runs."""
    return ",".join(
        names.spec_config(job.name, spec, names.group(job.name, spec, pool.name))
        for job, spec in runs
    )


def pod_template(job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images) -> Manifest:
    """The pod template of a sampler group, before its pool exists."""
    meta, of_pool = future_pool(job, group)
    manifest = render(meta, of_pool, job=job, job_spec=spec, replicas=1, images=images)
    template: Manifest = manifest["spec"]["template"]
    return template


def emptied(meta: Meta, annotations: Mapping[str, str] | None = None) -> Manifest:
    """The patch of a Deployment at the observed version to 0 pods."""
    metadata: Manifest = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": {"replicas": 0}}


def selector(pool: str, run: str) -> dict[str, str]:
    """Labels that select a pool's pods of one run, or all of them if ``run`` is empty."""
    return {names.POOL_LABEL: pool, **({names.RUN_LABEL: run} if run else {})}


def _pod(
    pool: Meta, spec: SamplerPoolSpec, runs: Sequence[tuple[Meta, RLJobSpec]], *, images: Images
) -> Manifest:
    seats = [
        Seat(job=job.name, number=number, runs=len(runs)) for number, (job, _) in enumerate(runs)
    ]
    parts = [
        engine_key.known_to(
            shared_engine.seated(
                agents.part(pool, spec, job, job_spec, seat=seat, images=images), seat
            )
        )
        for seat, (job, job_spec) in zip(seats, runs, strict=True)
    ]
    served = shared_engine.engine(
        engine.container(
            spec, [run_spec for _, run_spec in runs], images=images, agent_port=agents.PORT
        ),
        seats,
        weights=engine.WEIGHTS_FOLDER,
        first_port=agents.PORT,
    )
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pods.pull_secrets(images),
        "securityContext": pods.pod_security(),
        "terminationGracePeriodSeconds": spec.template.drain.seconds + END_SECONDS,
        # The engine is a native sidecar: it outlives the agents, which return their tasks.
        "initContainers": [
            *(part.stage for part in parts),
            engine_key.asked_by(served),
            *(each for part in parts for each in part.sidecars),
        ],
        "containers": [part.agent for part in parts],
        "volumes": [
            *(each for part in parts for each in part.volumes),
            *shared_engine.volumes(seats, spec.template),
            disk.volume("engine-tmp", disk.ENGINE_TMP),
            engine_key.volume(),
            disk.in_memory("shared-memory", disk.SHARED_MEMORY),
        ],
    }
    alike = selector(pool.name, runs[0][0].run if len(runs) == 1 else "")
    return pods.placed(pod, spec.template, like=alike)
