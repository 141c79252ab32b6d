"""What keeps a pod from starting is explained by the field that causes it, with a remedy."""

from __future__ import annotations

import pytest

from rl_operator.state.start_hints import Declared

DECLARED = Declared(
    namespace="ml",
    specs={
        "spec": {
            "storage": {"secretName": "stores"},
            "code": {"configMapRef": {"name": "scorers"}},
            "tracking": {"secretName": "wandb"},
            "samplers": [
                {
                    "name": "main",
                    "template": {
                        "image": "registry.example/sampler:9",
                        "engine": {"endpoints": [{"tokenSecretRef": {"name": "judge"}}]},
                        "podTemplate": {
                            "spec": {
                                "volumes": [{"persistentVolumeClaim": {"claimName": "scratch"}}]
                            }
                        },
                    },
                }
            ],
        }
    },
    sections={"": "spec.trainer", "job-main": "spec.samplers[0].template"},
)
TROUBLES = {
    "FailedMount of code": (
        'FailedMount: MountVolume.SetUp failed for volume "code" : configmap "scorers" not found',
        "",
        "spec.code.configMapRef.name = 'scorers': Create ConfigMap scorers in namespace ml, or "
        "correct the field.",
    ),
    "FailedMount of the stores": (
        'FailedMount: MountVolume.SetUp failed for volume "stores" : secret "stores" not found',
        "",
        "spec.storage.secretName = 'stores': Create Secret stores in namespace ml, or correct the "
        "field.",
    ),
    "CreateContainerConfigError of tracking": (
        'Pod p, container pytorch: CreateContainerConfigError: secret "wandb" not found',
        "",
        "spec.tracking.secretName = 'wandb': Create Secret wandb in namespace ml, or correct the "
        "field.",
    ),
    "a missing key of a token": (
        "CreateContainerConfigError: couldn't find key token in Secret ml/judge",
        "job-main",
        "spec.samplers[0].template.engine.endpoints[0].tokenSecretRef.name = 'judge': Add key "
        "token to Secret judge in namespace ml, or correct the field.",
    ),
    "a claim": (
        'Pod p fits no node: persistentvolumeclaim "scratch" not found.',
        "job-main",
        "spec.samplers[0].template.podTemplate.spec.volumes[0].persistentVolumeClaim.claimName = "
        "'scratch': Create PersistentVolumeClaim scratch in namespace ml, or correct the field.",
    ),
    "an object that no field names": (
        'FailedMount: MountVolume.SetUp failed for volume "x" : secret "other" not found',
        "",
        "Create Secret other in namespace ml.",
    ),
    "FailedScheduling": (
        "Pod p fits no node: 0/3 nodes are available: 3 Insufficient cpu.",
        "job-main",
        "Check resources, nodeSelector, tolerations and topologySpread of "
        "spec.samplers[0].template, and the free capacity of the cluster.",
    ),
    "FailedCreate by a quota": (
        'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1',
        "",
        "Raise the ResourceQuota of namespace ml, or lower what spec.trainer asks for.",
    ),
    "another": ("FailedMount: timed out waiting for the condition", "", ""),
}


@pytest.mark.parametrize(("trouble", "pool", "hint"), TROUBLES.values(), ids=TROUBLES.keys())
def test_trouble_names_the_field_and_the_remedy(trouble: str, pool: str, hint: str) -> None:
    assert DECLARED.hint(trouble, pool=pool) == hint


def test_an_image_that_cannot_be_pulled_names_its_field() -> None:
    image = "registry.example/sampler:9"
    hint = DECLARED.hint("ImagePullBackOff: not found", pool="job-main", image=image)
    assert hint.startswith(f"spec.samplers[0].template.image = '{image}': Correct the image")
    hint = DECLARED.hint("ImagePullBackOff: not found", pool="job-main", image="ours:1")
    assert hint.startswith("The operator's chart sets image ours:1 (values images.*)")
