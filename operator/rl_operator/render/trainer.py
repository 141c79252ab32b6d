"""Renders the trainer of one attempt as a PyTorchJob."""

from __future__ import annotations

from typing import Any

from kubeflow.training.configuration import Configuration
from kubeflow.training.models import (
    KubeflowOrgV1ElasticPolicy,
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
)

from rl_contracts import env
from rl_contracts.pod_overlay import laid_over
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import METRICS_PORT, Trainer
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import COMPONENT_LABEL, RUN_LABEL
from rl_operator.kube.settings import Images
from rl_operator.render import disk, hub_access, pods
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.samplers import colocated, sandbox

Manifest = dict[str, Any]

CONTAINER = "pytorch"
"""training-operator requires a container of this name."""
RENDEZVOUS_BACKEND = "c10d"
REPLICA_LABEL = "training.kubeflow.org/replica-index"
"""Set by training-operator on each pod."""
TRACKING_FOLDER = "/etc/rl/tracking"
ONCE: dict[str, Any] = {"local_vars_configuration": Configuration()}
"""Otherwise each model creates a Configuration, which sets logger levels and so clears caches."""


def render(
    job: Meta, spec: RLJobSpec, *, attempt: int, images: Images, size: int | None = None
) -> Manifest:
    """The PyTorchJob of one attempt, ≥ 1, with ``size`` equal pods (default: ``trainer.replicas``).

    It has workers only: a Master would add an init container that restricted namespaces refuse.
    The elastic policy serves rendezvous only. Restarts, deadlines and limits are the operator's:
    hence ``Never`` and none of training-operator's own.
    """
    size = size or spec.trainer.replicas
    worker = KubeflowOrgV1ReplicaSpec(
        replicas=size,
        restart_policy="Never",
        template=pod_template(job, spec, attempt=attempt, images=images, size=size),
        **ONCE,
    )
    body = KubeflowOrgV1PyTorchJob(
        api_version=kinds.PYTORCH_JOB.api_version,
        kind=kinds.PYTORCH_JOB.name,
        metadata={
            "name": names.trainer(job.name, attempt),
            "namespace": job.namespace,
            "labels": labels(job=job.name, run=job.run, component="trainer", attempt=attempt),
            "ownerReferences": owned_by(job, kinds.RLJOB),
        },
        spec=KubeflowOrgV1PyTorchJobSpec(
            nproc_per_node=str(spec.trainer.processes),
            elastic_policy=_rendezvous(spec.trainer, size),
            run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="Running", **ONCE),
            pytorch_replica_specs={"Worker": worker},
            **ONCE,
        ),
        **ONCE,
    )
    manifest = _plain(body)
    assert isinstance(manifest, dict)
    return stamped(manifest)


def pod_template(
    job: Meta, spec: RLJobSpec, *, attempt: int, images: Images, size: int | None = None
) -> Manifest:
    """The template of the trainer's pods, which are ``size`` (default: ``trainer.replicas``)."""
    config = names.trainer_config(job.name, spec)
    if size is not None and size != spec.trainer.replicas:
        resized = spec.trainer.model_copy(update={"replicas": size})
        spec = spec.model_copy(update={"trainer": resized})
    tracking = spec.training.tracking.secret_name
    shared = disk.ranks_memory_gib(spec.trainer)
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pods.pull_secrets(images),
        "securityContext": pods.pod_security(),
        "terminationGracePeriodSeconds": spec.lifecycle.suspend_grace_seconds,
        "containers": [_container(job, spec, attempt=attempt, images=images)],
        "volumes": [
            *pods.spec_volumes(config=config, secret=spec.storage.secret_name),
            disk.volume("tmp", disk.trainer(spec.trainer)),
            *([disk.in_memory(disk.RANKS_MEMORY, f"{shared}Gi")] if shared else []),
            *hub_access.trainer_volumes(spec),
            *([_tracking_volume(tracking)] if tracking else []),
        ],
    }
    metadata: Manifest = {
        "labels": labels(job=job.name, run=job.run, component="trainer", attempt=attempt)
    }
    if spec.colocated:
        pod = colocated.joined(pod, job, spec, images=images)
        identity = sandbox.kept_from(pod)
        metadata |= {"annotations": identity} if identity else {}
    placed = pods.placed(pod, spec.trainer, like={RUN_LABEL: job.run, COMPONENT_LABEL: "trainer"})
    template = {"metadata": metadata, "spec": placed}
    return laid_over(template, spec.trainer.pod_template)


def _container(job: Meta, spec: RLJobSpec, *, attempt: int, images: Images) -> Manifest:
    variables = _variables(job, spec, attempt=attempt)
    container = {
        "name": CONTAINER,
        "image": spec.trainer.image or images.trainer,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "rl_trainer"],
        "env": pods.environment(variables, spec.trainer.env) + _place(spec.trainer),
        "ports": [{"name": "http", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "resources": spec.trainer.resources.to_kubernetes(),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *pods.spec_mounts(),
            {"name": "tmp", "mountPath": "/tmp"},
            *([_ranks_mount()] if disk.ranks_memory_gib(spec.trainer) else []),
            *hub_access.trainer_mounts(spec),
            *([_tracking_mount()] if spec.training.tracking.secret_name else []),
        ],
    }
    return pods.reading(container, spec.trainer.env_from)


def _variables(job: Meta, spec: RLJobSpec, *, attempt: int) -> dict[str, str]:
    """Environment variables that the operator sets."""
    variables = {
        env.NAMESPACE: job.namespace,
        env.JOB: job.name,
        env.JOB_UID: job.uid,
        env.RUN: job.run,
        env.ATTEMPT: str(attempt),
        env.SPEC_FILE: pods.SPEC_FILE,
        env.STORES_FOLDER: pods.STORES_FOLDER,
        env.LISTEN_PORT: str(METRICS_PORT),
        "HOME": "/tmp",
    }
    sizes = {
        env.REPLICAS: spec.trainer.replicas,
        env.PROCESSES: spec.trainer.processes,
    }
    variables |= {name: str(size) for name, size in sizes.items() if size > 1}
    if hub_access.of_trainer(spec):
        variables |= hub_access.variables(spec)
    if spec.training.tracking.secret_name:
        variables[env.TRACKING_FOLDER] = TRACKING_FOLDER
    return variables


def _rendezvous(trainer: Trainer, size: int) -> KubeflowOrgV1ElasticPolicy:
    """Rendezvous settings: without an elastic policy training-operator requires a Master."""
    wanted = trainer.elastic
    chosen = {
        "rdzv_backend": RENDEZVOUS_BACKEND,
        "rdzv_port": None if wanted is None else wanted.rdzv_port,
    }
    return KubeflowOrgV1ElasticPolicy(min_replicas=size, max_replicas=size, **chosen, **ONCE)


def _place(trainer: Trainer) -> list[Manifest]:
    """The variable with a pod's replica number; training-operator sets the first one's address."""
    if trainer.replicas == 1:
        return []
    path = f"metadata.labels['{REPLICA_LABEL}']"
    return [{"name": env.REPLICA, "valueFrom": {"fieldRef": {"fieldPath": path}}}]


def _ranks_mount() -> Manifest:
    return {"name": disk.RANKS_MEMORY, "mountPath": "/dev/shm"}


def _tracking_mount() -> Manifest:
    return {"name": "tracking", "mountPath": TRACKING_FOLDER, "readOnly": True}


def _tracking_volume(secret: str) -> Manifest:
    volume = {"secretName": secret, "defaultMode": pods.READ_BY_GROUP}
    return {"name": "tracking", "secret": volume}


def _plain(value: Any) -> Any:
    """A typed model as JSON data, unset fields left out."""
    names_of = getattr(value, "attribute_map", None)
    if names_of is None:
        if isinstance(value, dict):
            return {key: _plain(item) for key, item in value.items()}
        return value
    fields = {alias: getattr(value, name) for name, alias in names_of.items()}
    return {alias: _plain(item) for alias, item in fields.items() if item is not None}
