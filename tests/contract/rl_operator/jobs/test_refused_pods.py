"""Pods that the API server no longer allows as they are can always be removed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.kube.settings import JobRules
from tests.contract.rl_operator.jobs.test_queue import QUEUED, decide, workload
from tests.contract.rl_operator.process.admitted import a_deployment
from tests.contract.rl_operator.processes import ACCOUNT as OPERATOR
from tests.contract.rl_operator.reconciling import RULES
from tests.contract.rl_operator.world import WORLD_SYSTEM, World
from tests.kube import kueue
from tests.waiting import until

ACCOUNT = RULES.service_accounts[0]
POLICY = f"rl-operator-writes.{WORLD_SYSTEM}"
NEVER = "false"
SAME_TEMPLATE = "object.spec.template == oldObject.spec.template"
TEMPLATE = {"serviceAccountName": ACCOUNT}


def running(world: World) -> Key:
    """A job whose pool has a Deployment with pods of a service account of the stores."""
    world.make_secret()
    world.upload_inputs()
    job = world.make_job(samplers=[{"name": "main", "template": TEMPLATE}])
    world.settle(job)
    assert replicas(world) > 0
    return job


def replicas(world: World) -> int:
    (deployment,) = world.objects(kinds.DEPLOYMENT)
    return int(deployment["spec"]["replicas"])


def edit(world: World, job: Key, **spec: Any) -> None:
    patch = {"metadata": {"name": job.name, "namespace": job.namespace}, "spec": spec}
    world.cluster.merge(kinds.RLJOB, patch)


@contextlib.contextmanager
def without_the_account(world: World) -> Iterator[None]:
    """The chart's policy as if ``pods.serviceAccounts`` did not name the account."""
    get = ("get", "validatingadmissionpolicy", POLICY, "-o", "json")
    before = json.loads(world.apiserver.kubectl(*get).stdout)
    rules = {key: before[key] for key in ("apiVersion", "kind", "spec")}
    policy = json.dumps({**rules, "metadata": {"name": POLICY}})
    pods = a_deployment(world.namespace)
    pods["spec"]["template"]["spec"]["serviceAccountName"] = ACCOUNT
    pods["metadata"]["name"] = "probe"
    assert not is_refused(world, pods)
    world.apiserver.kubectl("replace", "-f", "-", stdin=policy.replace(f"'{ACCOUNT}'", "'none'"))
    try:
        until(lambda: is_refused(world, pods), what="the stricter policy")
        yield
    finally:
        world.apiserver.kubectl("replace", "-f", "-", stdin=policy)
        until(lambda: not is_refused(world, pods), what="the policy as it was")


def is_refused(world: World, manifest: dict[str, Any]) -> bool:
    done = world.apiserver.kubectl(
        *("create", "--dry-run=server", "-f", "-", "--as"),
        f"system:serviceaccount:{WORLD_SYSTEM}:{OPERATOR}",
        stdin=json.dumps(manifest),
        check=False,
    )
    return POLICY in done.stderr


@contextlib.contextmanager
def only_updates(world: World, expression: str) -> Iterator[None]:
    """Another policy of the cluster, which admits only some updates of Deployments."""
    name = f"frozen-{world.namespace}"
    rules = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    here = f"request.namespace == '{world.namespace}'"
    spec = {
        "matchConstraints": {"resourceRules": [{**rules, "operations": ["UPDATE"]}]},
        "matchConditions": [{"name": "here", "expression": here}],
        "validations": [{"expression": expression, "message": "frozen"}],
    }
    kind = "ValidatingAdmissionPolicy"
    bound = {"policyName": name, "validationActions": ["Deny"]}
    made = [
        {"kind": kind, "metadata": {"name": name}, "spec": spec},
        {"kind": f"{kind}Binding", "metadata": {"name": name}, "spec": bound},
    ]
    for each in made:
        manifest = {"apiVersion": "admissionregistration.k8s.io/v1", **each}
        world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        until(lambda: cannot_change_pods(world), what="the other policy")
        yield
    finally:
        for each in made:
            world.apiserver.kubectl("delete", str(each["kind"]), name)


def cannot_change_pods(world: World) -> bool:
    patch = '{"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}'
    done = world.apiserver.kubectl(
        *("-n", world.namespace, "patch", "deployment", "job-main", "--dry-run=server"),
        *("--type=merge", "-p", patch),
        check=False,
    )
    return "frozen" in done.stderr


@pytest.mark.soak
def test_a_job_whose_service_account_is_no_longer_allowed_can_be_suspended(world: World) -> None:
    job = running(world)
    with without_the_account(world):
        world.start_operator(rules=JobRules())
        world.settle(job)
        assert world.condition(job, "Stalled")["reason"] == "ServiceAccountRefused"
        edit(world, job, suspend=True)
        world.settle(job)
        assert replicas(world) == 0
        assert world.condition_now(job, "Suspended")


def comes_to(world: World, job: Key, reason: str, *, words: str = "") -> None:
    """Reconcile until the headline has a reason and words; refused writes are tried again."""

    def has_come() -> bool:
        world.reconcile(job)
        ready = world.condition(job, "Ready")
        return ready.get("reason") == reason and words in ready["message"]

    until(has_come, what=f"{reason}: {words}", seconds=60)


def test_a_job_whose_new_pods_are_refused_can_be_suspended_and_stopped(world: World) -> None:
    job = running(world)
    with only_updates(world, SAME_TEMPLATE):
        template = {**TEMPLATE, "nodeSelector": {"disk": "fast"}}
        edit(world, job, samplers=[{"name": "main", "template": template}])
        comes_to(world, job, "WaitingForSamplers", words="frozen")
        edit(world, job, suspend=True)
        comes_to(world, job, "Suspended")
        assert replicas(world) == 0
        edit(world, job, stop=True)
        comes_to(world, job, "Stopped")


@pytest.mark.soak
def test_a_pool_that_cannot_be_emptied_says_why(world: World) -> None:
    job = running(world)
    with only_updates(world, NEVER):
        edit(world, job, suspend=True)
        comes_to(world, job, "Stopping")
        assert world.operator is not None
        world.operator.skew += 1000
        comes_to(world, job, "PodsNotStopping", words="SamplerPool job-main is Stalled")
        assert "frozen" in world.condition(job, "Stalled")["message"]
    until(lambda: not cannot_change_pods(world), what="the other policy to go")
    comes_to(world, job, "Suspended")
    assert replicas(world) == 0


def test_a_started_job_goes_on_although_its_fixed_images_are_no_longer_allowed(
    queue: World,
) -> None:
    """Nobody could correct them: the API server takes no edit of ``agent``."""
    job = queue.make_job(
        scheduling=QUEUED,
        agent={"kind": "Environment", "environment": {"image": "words:1"}},
        reward={"scorers": [{"kind": "Environment"}]},
    )
    queue.settle(job)
    decide(queue, kueue.admitted(workload(queue)))
    queue.settle(job)
    status = {**queue.status(job), "attempt": 1}
    queue.set_status("rljob", job.name, status)

    queue.start_operator(rules=JobRules(digests_required=True))
    assert queue.settle(job)["phase"] != "Stalled"
    conditions = queue.objects(kinds.SAMPLER_POOL)[0]["status"]["conditions"]
    assert not [each for each in conditions if each["reason"] == "ImageNotPinned"]
