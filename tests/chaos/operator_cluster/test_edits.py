"""What may be edited under a job at work, and takes effect; what may not, and is refused by name.

| row | edited | effect |
|---|---|---|
| fixed | each section that is fixed once started or while it runs, `runId`, `managedBy` | refused |
| lifecycle | each field of it | the operator sees it, the trainer's pod stays |
| deadline | activeDeadlineSeconds | is raised, never lowered |
| policy | networkPolicy | None: it goes; else it comes back; the trainer's pod stays |
| limits | failurePolicy, backoffLimit, ttlSecondsAfterFinished | decide about what comes then |
| suspended | `trainer` while suspended | the next attempt has it |
| samplers | each field of a template | the Deployment and the budget have it |
| groups | another group, less in it, and its end | another pool, less in it, and its end |
| budget | disruption.pdb | it goes and comes back |
| pool's rest | a pool's `suspend` | no pods, the job says why; they come back |
| pool | a pool's own spec, by hand | the job's word stands, but for `/scale` |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rl_console.errors import NotFoundError, RequestRefusedError
from rl_operator.kube.names import SPEC_KEY
from tests.chaos.operator_cluster.edits import (
    FIXED,
    FOR_EVER,
    LIFECYCLE,
    NOWHERE,
    TEMPLATE,
    TOLERATION,
    WHILE_SUSPENDED,
    pod_spec,
    variables,
)
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    attempts,
    await_gone,
    await_phase,
    await_suspended_pool,
    condition_of,
    order,
    patch,
    suspend_pool,
    taught_job,
    trainer_pod,
)
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
WORKS, SAMPLED = "works", "sampled"
POOL = f"{SAMPLED}-main"
STEPS = 100
PATIENT = {"lifecycle__progressDeadlineSeconds": 3600, "lifecycle__suspendGraceSeconds": 2}
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


def await_names(lab: Lab, kind: str, job: str, wanted: list[str]) -> None:
    """Wait until these are a job's objects of a kind."""

    def names() -> list[str]:
        items = lab.get(kind, "-l", f"rl-operator.io/job={job}")["items"]
        return [item["metadata"]["name"] for item in items]

    until(lambda: names() == wanted, what=f"{kind} {wanted} of {job}", seen=names)


@pytest.mark.parametrize(("section", "change"), FIXED.items(), ids=FIXED.keys())
def test_edit_of_a_fixed_section_is_refused(
    lab: Lab, uids: dict[str, str], section: str, change: dict[str, Any]
) -> None:
    generation = lab.job(WORKS).generation
    against = refusal(lab, WORKS, {section: change})
    path = "training.seed" if section == "training" else section  # compared by fields
    assert f"spec.{path} cannot change once the trainer has been started" in against
    assert lab.job(WORKS).generation == generation


@pytest.mark.parametrize(("section", "change"), WHILE_SUSPENDED.items(), ids=WHILE_SUSPENDED.keys())
def test_edit_of_trainer_or_scheduling_needs_a_suspended_job(
    lab: Lab, uids: dict[str, str], section: str, change: dict[str, Any]
) -> None:
    against = refusal(lab, WORKS, {section: change})
    assert f"spec.{section} cannot change while the trainer runs: set spec.suspend first" in against


@pytest.mark.parametrize(("field", "value"), FOR_EVER.items(), ids=FOR_EVER.keys())
def test_edit_of_an_immutable_field_is_refused(
    lab: Lab, uids: dict[str, str], field: str, value: str
) -> None:
    against = refusal(lab, WORKS, {field: value})
    assert "spec.managedBy and spec.runId cannot change" in against


@pytest.mark.parametrize(("field", "value"), LIFECYCLE.items(), ids=LIFECYCLE.keys())
def test_edit_of_lifecycle_keeps_the_trainer_pod(
    lab: Lab, uids: dict[str, str], field: str, value: Any
) -> None:
    pod = lab.get("pod", trainer_pod(lab, WORKS))["metadata"]["uid"]
    edit(lab, WORKS, {"lifecycle": {field: value}})
    assert lab.get("pod", trainer_pod(lab, WORKS))["metadata"]["uid"] == pod
    status = lab.job(WORKS).status
    assert (status.attempt, status.failures) == (1, 0)


def test_lowering_the_active_deadline_is_refused(lab: Lab, uids: dict[str, str]) -> None:
    edit(lab, WORKS, {"lifecycle": {"activeDeadlineSeconds": LIFECYCLE["activeDeadlineSeconds"]}})
    edit(lab, WORKS, {"lifecycle": {"activeDeadlineSeconds": 90000}})
    against = refusal(lab, WORKS, {"lifecycle": {"activeDeadlineSeconds": 86400}})
    assert "activeDeadlineSeconds" in against
    assert "it can only be raised" in against


def test_network_policy_is_deleted_and_created_by_edits(lab: Lab, uids: dict[str, str]) -> None:
    pod = lab.get("pod", trainer_pod(lab, WORKS))["metadata"]["uid"]
    rows: list[tuple[str, list[str]]] = [("None", []), ("RunOnly", [WORKS])]
    for value, wanted in rows:
        edit(lab, WORKS, {"networkPolicy": value})
        await_names(lab, "networkpolicies", WORKS, wanted)
    assert lab.get("pod", trainer_pod(lab, WORKS))["metadata"]["uid"] == pod


def test_edits_apply_to_later_events_only(lab: Lab, uids: dict[str, str]) -> None:
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
    variables = lab.get("pod", trainer_pod(lab, WORKS))["spec"]["containers"][0]["env"]
    assert {"name": "A", "value": "b"} in variables

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


def of_group(lab: Lab, name: str = "main") -> dict[str, Any]:
    groups = lab.get("rljob", SAMPLED)["spec"]["samplers"]
    group: dict[str, Any] = next(group for group in groups if group["name"] == name)
    return group


@pytest.mark.parametrize("field", TEMPLATE)
def test_edit_of_a_template_field_reaches_deployment_and_budget(
    lab: Lab, uids: dict[str, str], field: str
) -> None:
    change, read, wanted = TEMPLATE[field]
    await_names(lab, "pdb", SAMPLED, [POOL])  # it comes with a ready pod
    group = of_group(lab)
    for key, value in change.items():
        now = group["template"].get(key)
        whole = isinstance(value, dict) and isinstance(now, dict)
        group["template"][key] = {**now, **value} if whole else value
    edit(lab, SAMPLED, {"samplers": [group]})

    def seen() -> object:
        try:
            return read(lab.get("deployment", POOL), lab.get("pdb", POOL))
        except (KeyError, IndexError):
            return None

    until(lambda: seen() == wanted, what=f"{field} in the Deployment", seen=seen)


def test_edited_agent_config_is_mounted_into_new_pods(lab: Lab, uids: dict[str, str]) -> None:
    group = of_group(lab)
    group["template"]["maxConcurrentGroups"] = 3
    edit(lab, SAMPLED, {"samplers": [group]})

    def read() -> object:
        volumes = pod_spec(lab.get("deployment", POOL))["volumes"]
        config = next(volume["configMap"]["name"] for volume in volumes if volume["name"] == "spec")
        text = lab.get("configmap", config)["data"][SPEC_KEY]
        return json.loads(text)["samplers"][0]["template"]["maxConcurrentGroups"]

    until(lambda: read() == 3, what="what pods mount", seen=read)


def test_autoscaling_is_switched_on_and_off(lab: Lab, uids: dict[str, str]) -> None:
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


def test_fields_of_a_new_group_and_the_group_can_be_removed(lab: Lab, uids: dict[str, str]) -> None:
    def pools() -> list[str]:
        return sorted(pool.name for pool in lab.cluster.pools(lab.namespace, SAMPLED))

    def placed() -> tuple[list[str], list[str], int]:
        deployment = lab.get("deployment", f"{SAMPLED}-more")
        keys = [toleration["key"] for toleration in pod_spec(deployment).get("tolerations", [])]
        budget = lab.get("pdb", f"{SAMPLED}-more")["spec"]["maxUnavailable"]
        return keys, sorted(variables(deployment, "engine")), budget

    first, template = of_group(lab), {"nodeSelector": NOWHERE}
    full: dict[str, Any] = {
        "tolerations": [TOLERATION],
        "engine": {"env": [{"name": "A", "value": "b"}]},
        "disruption": {"maxUnavailable": 2},
    }
    bare = {"name": "more", "template": template}
    second = {"name": "more", "template": template | full}
    edit(lab, SAMPLED, {"samplers": [first, second]})
    until(lambda: pools() == [POOL, f"{SAMPLED}-more"], what="another pool", seen=pools)
    await_names(lab, "pdb", SAMPLED, pools())  # though no pod is ever ready
    until(lambda: placed() == ([TOLERATION["key"]], ["A", "HOME", "USER"], 2), what="all of it")
    edit(lab, SAMPLED, {"samplers": [first, bare]})
    until(lambda: placed() == ([], ["HOME", "USER"], 1), what="the rest of it", seen=placed)
    edit(lab, SAMPLED, {"samplers": [first]})
    until(lambda: pools() == [POOL], what="its end", seen=pools)


def test_disruption_budget_follows_the_template(lab: Lab, uids: dict[str, str]) -> None:
    group = of_group(lab)
    group["template"].setdefault("disruption", {})
    rows: list[tuple[bool, list[str]]] = [(False, []), (True, [POOL])]
    for wanted, expected in rows:
        group["template"]["disruption"]["pdb"] = wanted
        edit(lab, SAMPLED, {"samplers": [group]})
        await_names(lab, "pdb", SAMPLED, expected)


def test_suspended_pool_has_no_pods(lab: Lab, uids: dict[str, str]) -> None:
    def size() -> int:
        return int(lab.get("deployment", POOL)["spec"]["replicas"])

    until(lambda: size() == 1, what="a pod to be wanted", seen=size)
    suspend_pool(lab, POOL, wanted=True)
    await_suspended_pool(lab, POOL)
    assert (size(), lab.pods(SAMPLED)) == (0, [])
    message = "main has 0 of 1 (its SamplerPool has spec.suspend)"
    until(lambda: message in condition_of(lab.job(SAMPLED).status, "Ready").message, what=message)
    suspend_pool(lab, POOL, wanted=False)
    until(lambda: size() == 1 and lab.pods(SAMPLED), what="its pod to come back", seen=size)


def test_job_reverts_manual_edits_of_its_pool_except_its_size(
    lab: Lab, uids: dict[str, str]
) -> None:
    lab.kubectl("scale", "samplerpool", POOL, "--replicas=0")
    change = '{"spec": {"template": {"maxConcurrentGroups": 9}}}'
    lab.kubectl("patch", "samplerpool", POOL, "--type=merge", "-p", change)
    wanted = of_group(lab)["template"]["maxConcurrentGroups"]

    def spec() -> dict[str, Any]:
        spec: dict[str, Any] = lab.get("samplerpool", POOL)["spec"]
        return spec

    until(
        lambda: spec()["template"]["maxConcurrentGroups"] == wanted,
        what="the job's word",
        seen=spec,
    )
    assert spec()["replicas"] == 0
    until(lambda: lab.pods(SAMPLED) == [], what="its pods to go")


def test_deleted_job_leaves_nothing_behind(lab: Lab, uids: dict[str, str]) -> None:
    await_gone(lab, {SAMPLED: uids[SAMPLED]})
