"""The trainer of one attempt as a PyTorchJob: the only module that knows this kind."""

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
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import Trainer
from rl_operator.kube import kinds, names
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import COMPONENT_LABEL, RUN_LABEL
from rl_operator.kube.settings import Images
from rl_operator.render import hub_access, pods
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.objects import METRICS_PORT
from rl_operator.render.overrides import laid_over

Manifest = dict[str, Any]

CONTAINER = "pytorch"
"""training-operator looks for a container of this name."""
RENDEZVOUS_BACKEND = "c10d"
REPLICA_LABEL = "training.kubeflow.org/replica-index"
"""training-operator's, on each pod."""
TRACKING_FOLDER = "/etc/rl/tracking"
ONCE: dict[str, Any] = {"local_vars_configuration": Configuration()}
"""Else each model makes one, which sets levels of loggers and so empties their caches."""


def render(
    job: Meta, spec: RLJobSpec, *, attempt: int, images: Images, size: int | None = None
) -> Manifest:
    """The PyTorchJob of one attempt, ≥ 1: ``size`` like pods, the first of which leads.

    Without a size it is ``trainer.replicas``.

    Worker-only: a Master would bring an init container that restricted namespaces refuse. The
    elastic policy is there for rendezvous alone. Restarts, deadlines and limits are ours, hence
    ``Never`` and none of training-operator's own.
    """
    size = size or spec.trainer.replicas
    spec = spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"replicas": size})})
    worker = KubeflowOrgV1ReplicaSpec(
        replicas=size,
        restart_policy="Never",
        template=pod_template(job, spec, attempt=attempt, images=images),
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
            nproc_per_node=str(spec.trainer.processes_per_replica),
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


def pod_template(job: Meta, spec: RLJobSpec, *, attempt: int, images: Images) -> Manifest:
    """The template of the trainer's pods."""
    config = names.spec_config(job.name, spec)
    hub, tracking = hub_access.token_of_trainer(spec), spec.training.tracking.secret_name
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **pods.pull_secrets(images),
        "securityContext": pods.pod_security(),
        "terminationGracePeriodSeconds": spec.lifecycle.suspend_grace_seconds,
        "containers": [_container(job, spec, attempt=attempt, images=images)],
        "volumes": [
            *pods.spec_volumes(config=config, secret=spec.storage.secret_name),
            {"name": "tmp", "emptyDir": {}},
            *([hub_access.volume(hub)] if hub else []),
            *([_tracking_volume(tracking)] if tracking else []),
        ],
    }
    mine = labels(job=job.name, run=job.run, component="trainer", attempt=attempt)
    placed = pods.placed(pod, spec.trainer, like={RUN_LABEL: job.run, COMPONENT_LABEL: "trainer"})
    template = {"metadata": {"labels": mine}, "spec": placed}
    return laid_over(template, spec.trainer.pod_template)


def _container(job: Meta, spec: RLJobSpec, *, attempt: int, images: Images) -> Manifest:
    told = _told(job, spec, attempt=attempt)
    container = {
        "name": CONTAINER,
        "image": spec.trainer.image or images.trainer,
        "imagePullPolicy": images.pull_policy,
        "command": ["python", "-m", "rl_trainer"],
        "env": pods.environment(told, spec.trainer.env) + _place(spec.trainer),
        "ports": [{"name": "http", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "resources": spec.trainer.resources.to_kubernetes(),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *pods.spec_mounts(),
            {"name": "tmp", "mountPath": "/tmp"},
            *([hub_access.mount()] if hub_access.token_of_trainer(spec) else []),
            *([_tracking_mount()] if spec.training.tracking.secret_name else []),
        ],
    }
    return pods.reading(container, spec.trainer.env_from)


def _told(job: Meta, spec: RLJobSpec, *, attempt: int) -> dict[str, str]:
    """What the operator itself says to the container, by environment variable."""
    told = {
        env.NAMESPACE: job.namespace,
        env.JOB: job.name,
        env.RUN: job.run,
        env.ATTEMPT: str(attempt),
        env.SPEC_FILE: pods.SPEC_FILE,
        env.STORES_FOLDER: pods.STORES_FOLDER,
        env.LISTEN_PORT: str(METRICS_PORT),
        "HOME": "/tmp",
    }
    sizes = {
        env.REPLICAS: spec.trainer.replicas,
        env.PROCESSES: spec.trainer.processes_per_replica,
    }
    told |= {name: str(size) for name, size in sizes.items() if size > 1}
    if hub_access.of_trainer(spec):
        told |= hub_access.told(spec)
    if spec.training.tracking.secret_name:
        told[env.TRACKING_FOLDER] = TRACKING_FOLDER
    return told


def _rendezvous(trainer: Trainer, size: int) -> KubeflowOrgV1ElasticPolicy:
    """Where pods meet: without an elastic policy training-operator would want a Master."""
    wanted = trainer.elastic
    chosen = {
        "rdzv_backend": RENDEZVOUS_BACKEND if wanted is None else wanted.rdzv_backend,
        "rdzv_port": None if wanted is None else wanted.rdzv_port,
    }
    return KubeflowOrgV1ElasticPolicy(min_replicas=size, max_replicas=size, **chosen, **ONCE)


def _place(trainer: Trainer) -> list[Manifest]:
    """Which of several replicas a pod is; training-operator says where the first one listens."""
    if trainer.replicas == 1:
        return []
    path = f"metadata.labels['{REPLICA_LABEL}']"
    return [{"name": env.REPLICA, "valueFrom": {"fieldRef": {"fieldPath": path}}}]


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
            return {key: _plain(one) for key, one in value.items()}
        return value
    fields = {alias: getattr(value, name) for name, alias in names_of.items()}
    return {alias: _plain(one) for alias, one in fields.items() if one is not None}
