"""What may be edited under a job at work, and takes effect; what may not, and is refused by name.

| row | edited | effect |
|---|---|---|
| fixed | each section that is fixed once started, `trainer`, `runId` | refused, nothing moves |
| lifecycle | each field of it | the operator sees it, the trainer's pod stays |
| limits | failurePolicy, backoffLimit, ttlSecondsAfterFinished | decide about what comes then |
| suspended | `trainer` while suspended | the next attempt has it |
| samplers | each field of a template | the Deployment and the budget have it |
| groups | another group, and its end | another pool, and its end |
| pool | a pool's own spec, by hand | the job's word stands, but for `/scale` |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rl_console.errors import NotFoundError, RequestRefusedError
from rl_operator.names import SPEC_KEY
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    attempts,
    await_gone,
    await_phase,
    order,
    patch,
    taught_job,
    trainer_pod,
)
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
WORKS, SAMPLED = "works", "sampled"
POOL = f"{SAMPLED}-main"
STEPS = 100
PATIENT = {"lifecycle__progressDeadlineSeconds": 3600, "lifecycle__suspendGraceSeconds": 2}
NOWHERE = {"rl-test/nowhere": "true"}
FIXED: dict[str, dict[str, Any]] = {
    "model": {"uri": "s3://rl-data/models/other"},
    "data": {"onBadRecord": "Skip"},
    "agent": {"systemPrompt": "Be brief."},
    "reward": {"answerSchema": "Raw"},
    "code": {"configMapRef": {"name": "mine"}},
    "algorithm": {"groupSize": 4},
    "rollouts": {"maxAttempts": 4},
    "training": {"steps": 70},
    "storage": {"secretName": "other"},
    "weightSync": {"everySteps": 2},
}
LIFECYCLE: dict[str, Any] = {
    "backoffLimit": 7,
    "restartBackoffSeconds": 2,
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
IGNORE = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}


@pytest.fixture(scope="module")
def uids(lab: Lab) -> Iterator[dict[str, str]]:
    """A job whose trainer lives, but does nothing, and one whose samplers find no node."""
    lab.apply(taught_job(WORKS, faults="*=hang", training__steps=STEPS, **PATIENT))
    placed = {"samplers__0__template__nodeSelector": NOWHERE}
    lab.apply(short_job(SAMPLED, **placed))
    trainer_pod(lab, WORKS)
    until(lambda: lab.pods(SAMPLED), what="a sampler's pod")
    yield {name: lab.job(name).uid for name in (WORKS, SAMPLED)}
    lab.delete("rljob", WORKS, SAMPLED)


def refusal(lab: Lab, job: str, change: dict[str, Any]) -> str:
    """What the API server says against an edit; empty when it takes it."""
    try:
        patch(lab, job, json.dumps(change))
    except RequestRefusedError as error:
        return str(error)
    return ""


def edit(lab: Lab, job: str, change: dict[str, Any]) -> None:
    """Make an edit that the operator sees."""
    patch(lab, job, json.dumps(change))
    generation = lab.job(job).generation
    until(lambda: lab.job(job).status.observed_generation == generation, what=f"a look at {change}")


@pytest.mark.parametrize(("section", "change"), FIXED.items(), ids=FIXED.keys())
def test_a_fixed_section_is_refused(
    lab: Lab, uids: dict[str, str], section: str, change: dict[str, Any]
) -> None:
    generation = lab.job(WORKS).generation
    said = refusal(lab, WORKS, {section: change})
    assert f"spec.{section} cannot change once the trainer has been started" in said
    assert lab.job(WORKS).generation == generation


def test_the_trainer_s_section_needs_a_suspension_and_the_run_stays(
    lab: Lab, uids: dict[str, str]
) -> None:
    change = {"trainer": {"env": [{"name": "A", "value": "b"}]}}
    assert "spec.trainer cannot change while the trainer runs" in refusal(lab, WORKS, change)
    assert "spec.runId cannot change" in refusal(lab, WORKS, {"runId": "other"})


@pytest.mark.parametrize(("field", "value"), LIFECYCLE.items(), ids=LIFECYCLE.keys())
def test_lifecycle_may_change_under_a_trainer(
    lab: Lab, uids: dict[str, str], field: str, value: Any
) -> None:
    pod = lab.get("pod", trainer_pod(lab, WORKS))["metadata"]["uid"]
    edit(lab, WORKS, {"lifecycle": {field: value}})
    assert lab.get("pod", trainer_pod(lab, WORKS))["metadata"]["uid"] == pod
    status = lab.job(WORKS).status
    assert (status.attempt, status.failures) == (1, 0)


def test_edits_decide_about_what_comes_after_them(lab: Lab, uids: dict[str, str]) -> None:
    def finalizers() -> list[str]:
        return list(lab.get("rljob", WORKS)["metadata"].get("finalizers", []))

    until(lambda: finalizers() == ["rl-operator.io/data"], what="the data to be held")
    edit(lab, WORKS, {"lifecycle": {"dataPolicy": "Retain", "failurePolicy": {"rules": [IGNORE]}}})
    until(lambda: finalizers() == [], what="the data to be let go")
    order(lab, WORKS, "exit:7")
    until(lambda: lab.job(WORKS).status.attempt == 2, what="the next attempt")
    assert lab.job(WORKS).status.failures == 0

    patch(lab, WORKS, '{"suspend": true}')
    await_phase(lab, WORKS, "Suspended", "Suspended")
    edit(lab, WORKS, {"trainer": {"env": [{"name": "A", "value": "b"}]}, "suspend": False})
    found = lab.get("pod", trainer_pod(lab, WORKS))["spec"]["containers"][0]["env"]
    assert {"name": "A", "value": "b"} in found

    edit(lab, WORKS, {"lifecycle": {"backoffLimit": 0, "cleanupPolicy": "All"}})
    order(lab, WORKS, "exit:9")
    status = await_phase(lab, WORKS, "Failed")
    ended = [("Ignored", "TrainerFailed"), ("Suspended", "Suspended"), ("Failed", "TrainerFailed")]
    assert attempts(status) == ended
    until(lambda: lab.pods(WORKS) == [], what="the last trainer to go")
    edit(lab, WORKS, {"lifecycle": {"ttlSecondsAfterFinished": 86400}})
    patch(lab, WORKS, '{"lifecycle": {"ttlSecondsAfterFinished": 1}}')

    def gone() -> bool:
        try:
            lab.job(WORKS)
        except NotFoundError:
            return True
        return False

    until(gone, what="the job to expire")
    await_gone(lab, {WORKS: uids[WORKS]})


Found = Callable[[dict[str, Any], dict[str, Any]], object]
"""Finds a value in a Deployment and its budget."""


def pod_spec(deployment: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def container(deployment: dict[str, Any], name: str) -> dict[str, Any]:
    spec = pod_spec(deployment)
    there = [*spec.get("initContainers", []), *spec["containers"]]
    return next(one for one in there if one["name"] == name)


def variables(deployment: dict[str, Any], name: str) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(deployment, name)["env"]}


TOLERATION = {"key": "gpu", "operator": "Exists"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
TEMPLATE: dict[str, tuple[dict[str, Any], Found, object]] = {
    "nodeSelector": (
        {"nodeSelector": {**NOWHERE, "a": "b"}},
        lambda one, _: pod_spec(one)["nodeSelector"], {**NOWHERE, "a": "b"},
    ),
    "tolerations": (
        {"tolerations": [TOLERATION]}, lambda one, _: pod_spec(one)["tolerations"], [TOLERATION],
    ),
    "topologySpread": (
        {"topologySpread": [SPREAD]},
        lambda one, _: pod_spec(one)["topologySpreadConstraints"][0]["topologyKey"], "zone",
    ),
    "priorityClassName": (
        {"priorityClassName": "system-node-critical"},
        lambda one, _: pod_spec(one)["priorityClassName"], "system-node-critical",
    ),
    "podTemplate": (
        {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
        lambda one, _: one["spec"]["template"]["metadata"]["annotations"]["a"], "b",
    ),
    "image": ({"image": "agent:2"}, lambda one, _: container(one, "agent")["image"], "agent:2"),
    "engine.image": (
        {"engine": {"image": "e:2"}}, lambda one, _: container(one, "engine")["image"], "e:2",
    ),
    "engine.args": (
        {"engine": {"args": ["--device", "cpu"]}},
        lambda one, _: (container(one, "engine")["args"])[-2:], ["--device", "cpu"],
    ),
    "engine.env": (
        {"engine": {"env": [{"name": "A", "value": "c"}]}},
        lambda one, _: variables(one, "engine")["A"], "c",
    ),
    "engine.startupSeconds": (
        {"engine": {"startupSeconds": 1000}},
        lambda one, _: one["spec"]["progressDeadlineSeconds"], 1600,
    ),
    "resources": (
        {"resources": {"requests": {"cpu": "77m"}, "limits": {"memory": "3Gi"}}},
        lambda one, _: container(one, "engine")["resources"]["requests"]["cpu"], "77m",
    ),
    "drain": (
        {"drain": {"timeoutSeconds": 111}},
        lambda one, _: variables(one, "agent")["RL_DRAIN_SECONDS"], "111",
    ),
    "rollout": (
        {"rollout": {"maxUnavailable": 0, "maxSurge": 1}},
        lambda one, _: one["spec"]["strategy"]["rollingUpdate"],
        {"maxUnavailable": 0, "maxSurge": 1},
    ),
    "disruption": (
        {"disruption": {"maxUnavailable": 3}},
        lambda _, budget: budget["spec"]["maxUnavailable"], 3,
    ),
}  # fmt: skip


def of_group(lab: Lab, name: str = "main") -> dict[str, Any]:
    groups = lab.get("rljob", SAMPLED)["spec"]["samplers"]
    found: dict[str, Any] = next(one for one in groups if one["name"] == name)
    return found


@pytest.mark.parametrize("field", TEMPLATE)
def test_a_template_s_field_reaches_its_pods(lab: Lab, uids: dict[str, str], field: str) -> None:
    change, found, wanted = TEMPLATE[field]
    group = of_group(lab)
    for key, value in change.items():
        now = group["template"].get(key)
        whole = isinstance(value, dict) and isinstance(now, dict)
        group["template"][key] = {**now, **value} if whole else value
    edit(lab, SAMPLED, {"samplers": [group]})

    def seen() -> object:
        try:
            return found(lab.get("deployment", POOL), lab.get("pdb", POOL))
        except (KeyError, IndexError):
            return None

    until(lambda: seen() == wanted, what=f"{field} in the Deployment", seen=seen)


def test_what_the_agent_reads_reaches_it_in_new_pods(lab: Lab, uids: dict[str, str]) -> None:
    group = of_group(lab)
    group["template"]["maxConcurrentGroups"] = 3
    edit(lab, SAMPLED, {"samplers": [group]})

    def read() -> object:
        volumes = pod_spec(lab.get("deployment", POOL))["volumes"]
        config = next(one["configMap"]["name"] for one in volumes if one["name"] == "spec")
        text = lab.get("configmap", config)["data"][SPEC_KEY]
        return json.loads(text)["samplers"][0]["template"]["maxConcurrentGroups"]

    until(lambda: read() == 3, what="what pods mount", seen=read)


def test_autoscaling_may_be_switched_on_and_off(lab: Lab, uids: dict[str, str]) -> None:
    group = of_group(lab)
    group["template"]["autoscaling"] = {"mode": "Builtin", "minReplicas": 2, "maxReplicas": 3}
    edit(lab, SAMPLED, {"samplers": [group]})

    def size() -> int:
        return int(lab.get("deployment", POOL)["spec"]["replicas"])

    until(lambda: size() == 2, what="the operator to scale the pool", seen=size)
    group["template"]["autoscaling"] = {"minReplicas": 1}
    edit(lab, SAMPLED, {"samplers": [group]})
    lab.kubectl("scale", "samplerpool", POOL, "--replicas=1")
    until(lambda: size() == 1, what="the user to scale it", seen=size)


def test_groups_come_and_go(lab: Lab, uids: dict[str, str]) -> None:
    def pools() -> list[str]:
        return sorted(one.name for one in lab.cluster.pools(lab.namespace, SAMPLED))

    first = of_group(lab)
    second = {"name": "more", "template": {"nodeSelector": NOWHERE}}
    edit(lab, SAMPLED, {"samplers": [first, second]})
    until(lambda: pools() == [POOL, f"{SAMPLED}-more"], what="another pool", seen=pools)
    edit(lab, SAMPLED, {"samplers": [first]})
    until(lambda: pools() == [POOL], what="its end", seen=pools)


def test_a_pool_is_what_its_job_says_but_for_its_size(lab: Lab, uids: dict[str, str]) -> None:
    lab.kubectl("scale", "samplerpool", POOL, "--replicas=0")
    change = '{"spec": {"template": {"maxConcurrentGroups": 9}}}'
    lab.kubectl("patch", "samplerpool", POOL, "--type=merge", "-p", change)
    said = of_group(lab)["template"]["maxConcurrentGroups"]

    def spec() -> dict[str, Any]:
        found: dict[str, Any] = lab.get("samplerpool", POOL)["spec"]
        return found

    until(lambda: spec()["template"]["maxConcurrentGroups"] == said, what="the job's word",
          seen=spec)  # fmt: skip
    assert spec()["replicas"] == 0
    until(lambda: lab.pods(SAMPLED) == [], what="its pods to go")


def test_nothing_is_left_behind(lab: Lab, uids: dict[str, str]) -> None:
    await_gone(lab, {SAMPLED: uids[SAMPLED]})
