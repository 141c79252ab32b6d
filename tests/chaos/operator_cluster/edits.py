"""Each field that may be edited with another value for it, and where that is seen; what is fixed.

That no field is forgotten is shown by ``tests/unit/rl_contracts/test_edited_fields.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.chaos.operator_cluster.jobs import FAULTS

NOWHERE = {"rl-test/nowhere": "true"}
SECTIONS = ("lifecycle", "networkPolicy", "samplers", "sandbox", "stop", "suspend")
"""What may change at any time."""
FIXED: dict[str, Any] = {
    "model": {"uri": "s3://rl-data/models/other"},
    "data": {"onBadRecord": "Skip"},
    "agent": {"systemPrompt": "Be brief."},
    "reward": {"answerSchema": "Raw"},
    "code": {"configMapRef": {"name": "mine"}},
    "algorithm": {"groupSize": 4},
    "rollouts": {"maxAttempts": 4},
    "training": {"seed": 7},
    "storage": {"secretName": "other"},
    "weightSync": {"everySteps": 2},
    "placement": "Colocated",
}
WHILE_SUSPENDED: dict[str, dict[str, Any]] = {
    "trainer": {"env": [{"name": "A", "value": "b"}]},
    "scheduling": {"provider": "Kueue", "queueName": "other"},
}
FOR_EVER: dict[str, str] = {"runId": "other", "managedBy": "kueue.x-k8s.io/multikueue"}
LIFECYCLE: dict[str, Any] = {
    "backoffLimit": 7,
    "restartBackoffSeconds": 2,
    "restartBackoffMaxSeconds": 900,
    "activeDeadlineSeconds": 86400,
    "pendingDeadlineSeconds": 900,
    "progressDeadlineSeconds": 1800,
    "suspendGraceSeconds": 3,
    "ttlSecondsAfterFinished": 86400,
    "attemptHistoryLimit": 2,
    "cleanupPolicy": "All",
    "retention": {"rollouts": {"maxCount": 1000}},
    "dataPolicy": "Delete",
}


Found = Callable[[dict[str, Any], dict[str, Any]], object]
"""Finds a value in a Deployment and its budget."""


def pod_spec(deployment: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def container(deployment: dict[str, Any], name: str) -> dict[str, Any]:
    spec = pod_spec(deployment)
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return next(each for each in containers if each["name"] == name)


def variables(deployment: dict[str, Any], name: str) -> dict[str, str]:
    return {
        variable["name"]: variable.get("value", "")
        for variable in container(deployment, name)["env"]
    }


SOURCE: dict[str, Any] = {"configMapRef": {"name": FAULTS}}
TOLERATION = {"key": "gpu", "operator": "Exists"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
TEMPLATE: dict[str, tuple[dict[str, Any], Found, object]] = {
    "nodeSelector": (
        {"nodeSelector": {**NOWHERE, "a": "b"}},
        lambda manifest, _: pod_spec(manifest)["nodeSelector"],
        {**NOWHERE, "a": "b"},
    ),
    "tolerations": (
        {"tolerations": [TOLERATION]},
        lambda manifest, _: pod_spec(manifest)["tolerations"],
        [TOLERATION],
    ),
    "topologySpread": (
        {"topologySpread": [SPREAD]},
        lambda manifest, _: pod_spec(manifest)["topologySpreadConstraints"][0]["topologyKey"],
        "zone",
    ),
    "priorityClassName": (
        {"priorityClassName": "system-node-critical"},
        lambda manifest, _: pod_spec(manifest)["priorityClassName"],
        "system-node-critical",
    ),
    "serviceAccountName": (
        {"serviceAccountName": "default"},
        lambda manifest, _: pod_spec(manifest)["serviceAccountName"],
        "default",
    ),
    "podTemplate": (
        {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
        lambda manifest, _: manifest["spec"]["template"]["metadata"]["annotations"]["a"],
        "b",
    ),
    "image": (
        {"image": "agent:2"},
        lambda manifest, _: container(manifest, "agent")["image"],
        "agent:2",
    ),
    "env": (
        {"env": [{"name": "B", "value": "d"}]},
        lambda manifest, _: variables(manifest, "agent")["B"],
        "d",
    ),
    "envFrom": (
        {"envFrom": [SOURCE]},
        lambda manifest, _: container(manifest, "agent")["envFrom"],
        [SOURCE],
    ),
    "engine.image": (
        {"engine": {"image": "e:2"}},
        lambda manifest, _: container(manifest, "engine")["image"],
        "e:2",
    ),
    "engine.memoryFraction": (
        {"engine": {"memoryFraction": 0.5}},
        lambda manifest, _: (
            "--mem-fraction-static 0.5" in " ".join(container(manifest, "engine")["args"])
        ),
        True,
    ),
    "engine.args": (
        {"engine": {"args": ["--device", "cpu"]}},
        lambda manifest, _: (container(manifest, "engine")["args"])[-2:],
        ["--device", "cpu"],
    ),
    "engine.env": (
        {"engine": {"env": [{"name": "A", "value": "c"}]}},
        lambda manifest, _: variables(manifest, "engine")["A"],
        "c",
    ),
    "engine.envFrom": (
        {"engine": {"envFrom": [SOURCE]}},
        lambda manifest, _: container(manifest, "engine")["envFrom"],
        [SOURCE],
    ),
    "engine.startupSeconds": (
        {"engine": {"startupSeconds": 1000}},
        lambda manifest, _: manifest["spec"]["progressDeadlineSeconds"],
        1600,
    ),
    "resources": (
        {"resources": {"requests": {"cpu": "77m"}, "limits": {"memory": "3Gi"}}},
        lambda manifest, _: container(manifest, "engine")["resources"]["requests"]["cpu"],
        "77m",
    ),
    "drain.timeoutSeconds": (
        {"drain": {"timeoutSeconds": 111}},
        lambda manifest, _: variables(manifest, "agent")["RL_DRAIN_SECONDS"],
        "111",
    ),
    "drain.mode": (
        {"drain": {"mode": "Abort"}},
        lambda manifest, _: (
            variables(manifest, "agent")["RL_DRAIN_SECONDS"],
            pod_spec(manifest)["terminationGracePeriodSeconds"],
        ),
        ("0", 5),
    ),
    "rollout": (
        {"rollout": {"maxUnavailable": 0, "maxSurge": 1}},
        lambda manifest, _: manifest["spec"]["strategy"]["rollingUpdate"],
        {"maxUnavailable": 0, "maxSurge": 1},
    ),
    "disruption.maxUnavailable": (
        {"disruption": {"maxUnavailable": 3}},
        lambda _, budget: budget["spec"]["maxUnavailable"],
        3,
    ),
}
