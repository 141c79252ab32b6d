"""What the operator renders for a spec, and parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rl_contracts.spec.resources import GROUP, RLJobSpec, SamplerPoolSpec
from rl_operator.render import trainer
from rl_operator.render.samplers import deployment, own_pods
from tests.unit.rl_operator.builders import IMAGES, RUN, a_meta, a_spec

JOB = a_meta()
POOL = a_meta("job-main", uid="pool-uid", owner_uid=RUN)


def a_trainer_manifest(**sections: Any) -> dict[str, Any]:
    return trainer.render(JOB, a_spec(**sections), attempt=2, images=IMAGES)


def a_deployment(**sections: Any) -> dict[str, Any]:
    spec = a_spec(**sections)
    of_pool = SamplerPoolSpec(job="job", replicas=2, template=spec.samplers[0].template)
    return deployment.render(
        POOL, of_pool, job=JOB, job_spec=spec, replicas=of_pool.replicas, images=IMAGES
    )


def objects_beside(spec: RLJobSpec, *, size: int = 3) -> dict[str, dict[str, Any]]:
    """The objects of pods of programs or environments for ``size`` samplers, by kind."""
    of_pool = SamplerPoolSpec(job=JOB.name, template=spec.samplers[0].template)
    listed = own_pods.beside(POOL, of_pool, job=JOB, job_spec=spec, size=size, images=IMAGES)
    return {manifest["kind"]: manifest for manifest in listed}


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    if manifest["kind"] == "PyTorchJob":
        spec = spec["pytorchReplicaSpecs"]["Worker"]
    pod_spec: dict[str, Any] = spec["template"]["spec"]
    return pod_spec


def others_annotations(manifest: dict[str, Any]) -> dict[str, str]:
    """Annotations of a Deployment's pods that others than the operator read."""
    annotations: dict[str, str] = manifest["spec"]["template"]["metadata"]["annotations"]
    return {key: value for key, value in annotations.items() if not key.startswith(f"{GROUP}/")}


def containers_of(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    return {
        variable["name"]: "from the pod" if "valueFrom" in variable else variable.get("value", "")
        for variable in container["env"]
    }
