"""A user's pod template over ours: laid over by name, and refused where it is not theirs."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.pod_overlay import ADDED_SECURITY, laid_over
from rl_operator.render.overrides import refusals

RENDERED: dict[str, Any] = {
    "metadata": {"labels": {"rl-operator.io/job": "job"}},
    "spec": {
        "containers": [
            {
                "name": "pytorch",
                "image": "t:1",
                "env": [{"name": "RL_JOB", "value": "job"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "spec", "configMap": {"name": "c"}}, {"name": "tmp", "emptyDir": {}}],
    },
}


def test_rendering_is_unchanged_without_a_pod_template() -> None:
    assert laid_over(RENDERED, None) == RENDERED
    assert laid_over(RENDERED, {}) == RENDERED


def test_pod_template_is_merged_by_name() -> None:
    merged = laid_over(
        RENDERED,
        {
            "metadata": {"labels": {"team": "a"}, "annotations": {"x": "y"}},
            "spec": {
                "serviceAccountName": "sa",
                "containers": [
                    {
                        "name": "pytorch",
                        "env": [{"name": "A", "value": "1"}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    },
                    {"name": "proxy", "image": "p:1"},
                ],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
                    {"name": "tmp", "ephemeral": {}},
                ],
            },
        },
    )
    assert merged["metadata"]["labels"] == {"rl-operator.io/job": "job", "team": "a"}
    trainer, proxy = merged["spec"]["containers"]
    assert proxy == {"name": "proxy", "image": "p:1", "securityContext": ADDED_SECURITY}
    assert (trainer["image"], [variable["name"] for variable in trainer["env"]]) == (
        "t:1",
        ["RL_JOB", "A"],
    )
    assert [volume_mount["name"] for volume_mount in trainer["volumeMounts"]] == ["tmp", "data"]
    assert merged["spec"]["volumes"] == [
        {"name": "spec", "configMap": {"name": "c"}},
        {"name": "tmp", "ephemeral": {}},  # one source only
        {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
    ]
    assert merged["spec"]["serviceAccountName"] == "sa"
    assert RENDERED["spec"]["containers"][0]["env"] == [{"name": "RL_JOB", "value": "job"}]


def test_added_container_gets_no_rights_that_it_does_not_name() -> None:
    context = {"runAsUser": 1000, "capabilities": {"add": ["NET_BIND_SERVICE"]}}
    added = [{"name": "proxy", "image": "p:1", "securityContext": context}]
    merged = laid_over(RENDERED, {"spec": {"containers": added, "initContainers": added}})["spec"]
    for proxy in (merged["containers"][1], merged["initContainers"][0]):
        assert proxy["securityContext"] == {
            "runAsUser": 1000,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        }
    assert merged["containers"][0] == RENDERED["spec"]["containers"][0]


def test_volume_mounts_are_merged_by_path() -> None:
    mounts = [
        {"name": "tmp", "mountPath": "/scratch"},  # ours a second time
        {"name": "fast", "mountPath": "/tmp", "subPath": "t"},  # another volume in its place
    ]
    container = {"name": "pytorch", "volumeMounts": mounts}
    (merged,) = laid_over(RENDERED, {"spec": {"containers": [container]}})["spec"]["containers"]
    assert merged["volumeMounts"] == [mounts[1], mounts[0]]


def test_devices_reach_the_containers_whose_resources_the_spec_has() -> None:
    rendered = {"spec": {"containers": [{"name": "pytorch", "resources": {"limits": {"cpu": 1}}}]}}
    claims = [{"name": "gpu", "request": "first"}, {"name": "gpu", "request": "second"}]
    template = {
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            "containers": [{"name": "pytorch", "resources": {"claims": claims}}],
        }
    }
    assert list(refusals("x", template)) == []
    spec = laid_over(rendered, template)["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": 1}, "claims": claims}
    assert spec["resourceClaims"] == template["spec"]["resourceClaims"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a label of ours": (
        {"metadata": {"labels": {"rl-operator.io/run": "x"}}},
        "metadata.labels[rl-operator.io/run]",
    ),
    "training-operator's label": (
        {"metadata": {"labels": {"training.kubeflow.org/job-name": "x"}}},
        "metadata.labels[training.kubeflow.org/job-name]",
    ),
    "an owner": ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences"),
    "the name": ({"metadata": {"name": "x"}}, "metadata.name"),
    "the grace": ({"spec": {"terminationGracePeriodSeconds": 1}}, "spec.terminationGracePeriodS"),
    "restarts": ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
    "our command": (
        {"spec": {"containers": [{"name": "agent", "command": ["sh"]}]}},
        "spec.containers[0].command",
    ),
    "a probe": (
        {"spec": {"initContainers": [{"name": "engine", "livenessProbe": {}}]}},
        "spec.initContainers[0].livenessProbe",
    ),
    "resources that have a field": (
        {"spec": {"containers": [{"name": "pytorch", "resources": {}}]}},
        "spec.containers[0].resources",
    ),
    "a variable of ours": (
        {"spec": {"containers": [{"name": "agent", "env": [{"name": "RL_RUN", "value": "x"}]}]}},
        "spec.containers[0].env[0].name",
    ),
    "limits beside a claim": (
        {
            "spec": {
                "initContainers": [
                    {"name": "engine", "resources": {"claims": [], "limits": {"cpu": 1}}}
                ]
            }
        },
        "spec.initContainers[0].resources",
    ),
    "the launcher's variable": (
        {"spec": {"containers": [{"name": "pytorch", "env": [{"name": "PET_NPROC_PER_NODE"}]}]}},
        "spec.containers[0].env[0].name",
    ),
    "the home folder": (
        {"spec": {"initContainers": [{"name": "engine", "env": [{"name": "HOME"}]}]}},
        "spec.initContainers[0].env[0].name",
    ),
    "a mount where the spec lies": (
        {
            "spec": {
                "containers": [
                    {
                        "name": "pytorch",
                        "volumeMounts": [{"name": "v", "mountPath": "/etc/rl/spec"}],
                    }
                ]
            }
        },
        "spec.containers[0].volumeMounts[0].mountPath",
    ),
    "a mount there by another name": (
        {
            "spec": {
                "containers": [
                    {
                        "name": "agent",
                        "volumeMounts": [{"name": "v", "mountPath": "//etc/./rl/x/../spec"}],
                    }
                ]
            }
        },
        "spec.containers[0].volumeMounts[0].mountPath",
    ),
    "a mount where the policy lies": (
        {
            "spec": {
                "containers": [
                    {"name": "agent", "volumeMounts": [{"name": "v", "mountPath": "/weights"}]}
                ]
            }
        },
        "spec.containers[0].volumeMounts[0].mountPath",
    ),
    "the mounted Secret": ({"spec": {"volumes": [{"name": "stores"}]}}, "spec.volumes[0].name"),
    "a name of what a queue counts with a sampler": (
        {"spec": {"containers": [{"name": "rl-operator-program"}]}},
        "spec.containers[0].name",
    ),
    "the engine's key": ({"spec": {"volumes": [{"name": "engine-key"}]}}, "spec.volumes[0].name"),
    "a mount over the engine's key": (
        {
            "spec": {
                "initContainers": [
                    {
                        "name": "engine",
                        "volumeMounts": [{"name": "v", "mountPath": "/run/rl-engine"}],
                    }
                ]
            }
        },
        "spec.initContainers[0].volumeMounts[0].mountPath",
    ),
    "no part of a template": ({"status": {}}, "status"),
}


@pytest.mark.parametrize(("template", "path"), REFUSED.values(), ids=REFUSED.keys())
def test_reserved_keys_of_a_pod_template_are_refused_by_field(
    template: dict[str, Any], path: str
) -> None:
    (refusal,) = refusals("spec.trainer.podTemplate", template)
    assert refusal.reason == "OverrideReserved"
    assert refusal.field.startswith(f"spec.trainer.podTemplate.{path}")


MALFORMED: dict[str, tuple[Any, str]] = {
    "a nameless container": ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0]"),
    "a name that is none": ({"spec": {"volumes": [{"name": {}}]}}, "spec.volumes[0]"),
    "metadata in a word": ({"metadata": "x"}, "metadata"),
    "a list of pods": ({"spec": [{}]}, "spec"),
    "labels in a list": ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
    "containers by name": ({"spec": {"containers": {"agent": {}}}}, "spec.containers"),
    "variables by name": (
        {"spec": {"containers": [{"name": "agent", "env": {"A": "b"}}]}},
        "spec.containers[0].env",
    ),
    "mounts in a number": (
        {"spec": {"initContainers": [{"name": "mine", "volumeMounts": 1}]}},
        "spec.initContainers[0].volumeMounts",
    ),
    "a context in a list": (
        {"spec": {"containers": [{"name": "mine", "securityContext": []}]}},
        "spec.containers[0].securityContext",
    ),
    "an empty name": ({"spec": {"containers": [{"name": ""}]}}, "spec.containers[0]"),
    "a variable in a word": (
        {"spec": {"containers": [{"name": "agent", "env": ["A=b"]}]}},
        "spec.containers[0].env[0]",
    ),
}


@pytest.mark.parametrize(("template", "path"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_pod_template_is_refused_by_field(template: Any, path: str) -> None:
    (refusal,) = refusals("spec.trainer.podTemplate", template)
    assert (refusal.reason, refusal.field) == (
        "TemplateMalformed",
        f"spec.trainer.podTemplate.{path}",
    )


def test_malformed_value_is_shown() -> None:
    (refusal,) = refusals("t", {"spec": {"containers": {"agent": {}}}})
    assert (refusal.value, refusal.message) == ('{"agent": {}}', "This must be a list.")


def test_other_keys_of_a_pod_template_are_allowed() -> None:
    template = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            "affinity": {"podAntiAffinity": {}},
            "containers": [
                {"name": "agent", "resources": {"requests": {"cpu": "1"}}},
                {
                    "name": "pytorch",
                    "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/weights"}],
                },
            ],
        },
    }
    assert list(refusals("x", template)) == []
