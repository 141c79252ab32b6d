"""A place in a pod template leads back to the field of the spec that it comes from."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rl_operator.kube.api_errors import ApiHookError, ApiRefusedError
from rl_operator.kube.kinds import DEPLOYMENT, PYTORCH_JOB, Kind
from rl_operator.validation.dry_run import REFUSED_SECONDS, DryRun, field_of
from tests.unit.rl_operator.builders import IMAGES, a_meta, a_spec

TEMPLATE: dict[str, Any] = {
    "spec": {
        "initContainers": [{"name": "stage", "image": "x"}, {"name": "engine", "image": "x"}],
        "containers": [
            {
                "name": "agent",
                "image": "x",
                "env": [{"name": "A"}, {"name": "RL_RUN"}, {"name": "B"}],
            },
            {"name": "theirs"},
            {"name": "pytorch"},  # of podTemplate: it has no image
        ],
    }
}
PLACES = {
    "spec.tolerations[1].operator": "t.tolerations[1].operator",
    "spec.nodeSelector": "t.nodeSelector",
    "spec.serviceAccountName": "t.serviceAccountName",
    "spec.topologySpreadConstraints[0].maxSkew": "t.topologySpread[0].maxSkew",
    "spec.initContainers[1].resources.limits[cpu]": "t.resources.limits[cpu]",
    "spec.initContainers[1].resources.claims[0].name": (
        "t.podTemplate.spec.initContainers[1].resources.claims[0].name"
    ),
    "spec.initContainers[1].image": "t.engine.image",
    "spec.containers[0].image": "t.image",
    "spec.containers[0].env[0].valueFrom": "t.env[0].valueFrom",
    "spec.containers[0].env[2].valueFrom": "t.podTemplate.spec.containers[0].env[2].valueFrom",
    "spec.containers[0].envFrom[1].prefix": "t.envFrom[1].prefix",
    "spec.initContainers[1].envFrom[0]": "t.engine.envFrom[0]",
    "spec.containers[1].envFrom[0]": "t.podTemplate.spec.containers[1].envFrom[0]",
    "spec.containers[0].resources.requests": "t.podTemplate.spec.containers[0].resources.requests",
    "spec.containers[1].image": "t.podTemplate.spec.containers[1].image",
    "spec.containers[2].image": "t.podTemplate.spec.containers[2].image",
    "spec.runtimeClassName": "t.podTemplate.spec.runtimeClassName",
    "spec.affinity.podAffinity": "t.podTemplate.spec.affinity.podAffinity",
    "labels": "t.podTemplate.metadata.labels",
    "annotations": "t.podTemplate.metadata.annotations",
    "": "t.podTemplate",
}


@pytest.mark.parametrize(("path", "field"), PLACES.items())
def test_dry_run_names_the_field_of_the_manifest(path: str, field: str) -> None:
    assert field_of("t", path, TEMPLATE) == field


def test_dry_run_names_fields_that_other_sections_have() -> None:
    program, trainer = "spec.agent.program", "spec.trainer"
    assert field_of(program, "spec.runtimeClassName", TEMPLATE) == f"{program}.runtimeClassName"
    image = field_of(trainer, "spec.initContainers[1].image", TEMPLATE)
    assert image == "spec.samplers[0].template.engine.image"


class Webhook:
    """An API server in which somebody refuses pods for a while."""

    def __init__(self) -> None:
        self.tries, self.refuses, self.now = 0, True, 0.0

    def try_out(self, kind: Kind, manifest: dict[str, Any]) -> None:
        self.tries += 1
        if self.refuses:
            raise ApiRefusedError(doing="POST", status=422, message="denied the request")


def test_dry_run_repeats_refusals_and_caches_passes() -> None:
    server = Webhook()
    dry_run = DryRun(cluster=cast(Any, server), images=IMAGES, clock=lambda: server.now)
    for _ in range(3):
        refusal = dry_run.refusal(a_meta(), a_spec())
        assert refusal is not None
        assert "denied the request" in refusal.message
    assert server.tries == 1
    server.refuses, server.now = False, REFUSED_SECONDS
    assert dry_run.refusal(a_meta(), a_spec()) is None
    tries = server.tries
    server.refuses, server.now = True, 1e9
    assert dry_run.refusal(a_meta(), a_spec()) is None
    assert dry_run.refusal(a_meta("other", uid="other"), a_spec()) is None, "its pods are the same"
    assert server.tries == tries


def test_refused_values_are_shown_as_the_manifest_could_have_them() -> None:
    template = {"spec": {"volumes": [{"name": "v", "emptyDir": None, "ok": True}]}}
    cause = ("spec.template.spec.volumes[0]", "must have one source")
    error = ApiRefusedError(doing="POST", status=422, message="bad", causes=[cause])

    class Refusing:
        def try_out(self, *_: Any) -> None:
            raise error

    cluster: Any = Refusing()
    dry_run = DryRun(cluster=cluster, images=IMAGES, clock=lambda: 0.0)
    refusal = dry_run._tried(a_meta(), DEPLOYMENT, "spec.trainer", {"template": template})
    assert refusal is not None
    assert refusal.value == '{"name": "v", "emptyDir": null, "ok": true}'


def test_a_field_that_pytorchjob_lacks_is_refused_where_the_cluster_has_that_kind() -> None:
    place = "spec.pytorchReplicaSpecs.Worker.template.spec.resources"
    tried: list[str] = []

    class Strict:
        def try_out(self, kind: Kind, manifest: dict[str, Any]) -> None:
            tried.append(kind.name)
            if kind == PYTORCH_JOB:
                message = f'strict decoding error: unknown field "{place}"'
                raise ApiRefusedError(doing="POST", status=400, message=message)

    cluster: Any = Strict()
    dry_run = DryRun(cluster=cluster, images=IMAGES, clock=lambda: 0.0)
    resources = {"requests": {"cpu": "8"}}
    spec = a_spec(trainer={"podTemplate": {"spec": {"resources": resources}}})
    assert dry_run.refusal(a_meta(), spec, trainer_kind=False) is None
    assert "PyTorchJob" not in tried
    refusal = dry_run.refusal(a_meta(), spec)
    assert refusal is not None
    assert refusal.field == "spec.trainer.podTemplate.spec.resources"
    assert refusal.value == '{"requests": {"cpu": "8"}}'
    assert "training-operator's PyTorchJob has no such field" in refusal.remedy
    assert tried.count("PyTorchJob") == 1, "pods that passed as a Deployment's are tried again"
    assert tried.count("Deployment") == 2


def test_a_silent_webhook_of_training_operator_is_left_to_the_creation() -> None:
    class Silent:
        def try_out(self, kind: Kind, manifest: dict[str, Any]) -> None:
            if kind == PYTORCH_JOB:
                raise ApiHookError(doing="POST", status=500, message="failed calling webhook")

    cluster: Any = Silent()
    dry_run = DryRun(cluster=cluster, images=IMAGES, clock=lambda: 0.0)
    assert dry_run.refusal(a_meta(), a_spec()) is None
