"""The chart's admission policy: the operator's account writes what the operator renders, no more.

All other tests of this folder run under it, so it admits whatever they make the operator write.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes import client, config

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.render import objects
from rl_operator.render import reader as rendered
from rl_operator.render.metadata import labels
from tests.contract.rl_operator.process.admitted import (
    AGENTS,
    KINDS,
    Change,
    Manifest,
    Place,
    a_deployment,
    a_reader,
    a_trainer,
    job_of,
    own_pods_of,
    refusal,
    refused,
)
from tests.contract.rl_operator.processes import SYSTEM, Starter
from tests.contract.rl_operator.world import World, a_namespace
from tests.kube.apiserver import ApiServer
from tests.samples.manifests import a_job
from tests.waiting import until


@pytest.fixture(scope="module")
def place(with_trainer_kind: ApiServer, rights: Path) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        clusters = []
        for path in (with_trainer_kind.kubeconfig, rights):
            configuration = client.Configuration()
            config.load_kube_config(str(path), client_configuration=configuration)
            connected = stack.enter_context(client.ApiClient(configuration))
            clusters.append(
                Cluster(connected, may_write=lambda: None, count=lambda verb, kind: None)
            )
        administrator, operator = clusters
        yield Place(administrator, operator, a_namespace(with_trainer_kind))


OUTSIDE: dict[str, Change] = {
    "a balancer": lambda spec: spec.update(type="LoadBalancer"),
    "a port of the nodes": lambda spec: spec.update(type="NodePort"),
    "others' addresses": lambda spec: spec.update(externalIPs=["192.0.2.7"]),
    "pods of others": lambda spec: spec.update(selector={"app": "web"}),
    "a name of the outside": lambda spec: spec.update(type="ExternalName", externalName="a.b"),
}


@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_no_service_reaches_out_of_the_cluster_or_to_other_pods(
    place: Place, change: Change
) -> None:
    listed = own_pods_of(job_of(place.namespace), AGENTS[0])
    (service,) = (each for each in listed if "ports" in each["spec"])
    change(service["spec"])
    assert "Services within the cluster" in refused(place.operator, service)


def container(pod: Manifest) -> Manifest:
    made: Manifest = pod["spec"]["containers"][0]
    return made


def test_what_the_operator_renders_is_admitted(place: Place) -> None:
    job = job_of(place.namespace)
    for manifest in (
        a_reader(place.namespace),
        a_trainer(place.namespace),
        a_deployment(place.namespace),
        rendered.policy(place.namespace, system=SYSTEM),
        objects.network_policy(job),
        objects.disruption_budget(job, job="job", run="run"),
        *(manifest for agent in AGENTS for manifest in own_pods_of(job, agent)),
    ):
        assert refused(place.operator, manifest) == "", manifest["kind"]


def with_cloud_token(pod: Manifest, audience: str) -> Manifest:
    """As EKS's webhook for roles of service accounts changes a pod."""
    token = {"serviceAccountToken": {"audience": audience, "path": "token"}}
    pod["spec"]["serviceAccountName"] = "default"  # as the API server fills in before webhooks
    pod["spec"]["volumes"].append({"name": "aws-iam-token", "projected": {"sources": [token]}})
    place = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
    container(pod)["volumeMounts"].append({"name": "aws-iam-token", "mountPath": place})
    container(pod)["env"].append({"name": "AWS_ROLE_ARN", "value": "arn:aws:iam::1:role/rl"})
    return pod


@pytest.mark.parametrize(
    ("audience", "expected"),
    [("sts.amazonaws.com", ""), ("", "a token"), ("https://kubernetes.default.svc", "a token")],
)
def test_a_reader_may_have_a_token_for_its_cloud_and_for_nothing_else(
    place: Place, audience: str, expected: str
) -> None:
    answer = refused(place.operator, with_cloud_token(a_reader(place.namespace), audience))
    assert expected in answer
    assert bool(expected) == bool(answer)


@pytest.mark.parametrize("make", [a_trainer, a_deployment])
@pytest.mark.parametrize(
    ("audience", "expected"),
    [
        ("https://huggingface.co", ""),
        ("", "a token"),
        ("https://kubernetes.default.svc", "a token"),
        ("sts.amazonaws.com", "a token"),
    ],
)
def test_pods_of_a_run_may_have_a_token_for_the_hub_and_for_nothing_else(
    place: Place, make: Callable[[str], Manifest], audience: str, expected: str
) -> None:
    manifest = make(place.namespace)
    spec = manifest["spec"]
    workers = spec.get("pytorchReplicaSpecs", {}).get("Worker", spec)
    token = {"serviceAccountToken": {"audience": audience, "path": "token"}}
    volume = {"name": "hub", "projected": {"sources": [token]}}
    workers["template"]["spec"]["volumes"].append(volume)
    answer = refused(place.operator, manifest)
    assert expected in answer
    assert bool(expected) == bool(answer)


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", SYSTEM])
@pytest.mark.parametrize("make", [a_reader, a_trainer, a_deployment])
def test_nothing_is_written_to_the_clusters_own_namespaces(
    place: Place, namespace: str, make: Callable[[str], Manifest]
) -> None:
    answer = refused(place.operator, make(namespace))
    assert "no object of a job in this namespace" in answer


READER_CHANGES: dict[str, Change] = {
    "without our labels": lambda pod: pod["metadata"].pop("labels"),
    "as a sampler": lambda pod: pod["metadata"]["labels"].update(
        {names.COMPONENT_LABEL: "sampler"}
    ),
    "of another name": lambda pod: pod["metadata"].update(name="web"),
    "with another image": lambda pod: container(pod).update(image="operator:2"),
    "with another command": lambda pod: container(pod).update(command=["sh"]),
    "with another argument": lambda pod: container(pod)["args"].append("--listen=0.0.0.0"),
    "with another variable": lambda pod: container(pod)["env"].append(
        {"name": "PYTHONPATH", "value": "/tmp"}
    ),
    "with the keys of a Secret": lambda pod: container(pod).update(
        envFrom=[{"secretRef": {"name": "keys"}}]
    ),
    "with a probe that runs a program": lambda pod: container(pod).update(
        livenessProbe={"exec": {"command": ["sh"]}}
    ),
    "with a hook": lambda pod: container(pod).update(
        lifecycle={"preStop": {"exec": {"command": ["sh"]}}}
    ),
    "with a mount over its code": lambda pod: container(pod)["volumeMounts"].append(
        {"name": "tmp", "mountPath": "/opt"}
    ),
    "with a second container": lambda pod: pod["spec"]["containers"].append(
        {**container(pod), "name": "b"}
    ),
    "with an init container": lambda pod: pod["spec"].update(
        initContainers=[{"name": "b", "image": "operator:1"}]
    ),
    "with a folder of the node": lambda pod: pod["spec"]["volumes"][1].update(
        {"emptyDir": None, "hostPath": {"path": "/"}}
    ),
    "with another service account": lambda pod: pod["spec"].update(serviceAccountName="admin"),
    "with a token": lambda pod: pod["spec"].update(automountServiceAccountToken=True),
    "in the node's network": lambda pod: pod["spec"].update(hostNetwork=True),
    "as root": lambda pod: pod["spec"]["securityContext"].update(runAsUser=0, runAsNonRoot=False),
    "privileged": lambda pod: container(pod).update(securityContext={"privileged": True}),
}


@pytest.mark.parametrize("how", list(READER_CHANGES))
def test_no_pod_but_a_reader_is_created(place: Place, how: str) -> None:
    pod = a_reader(place.namespace)
    READER_CHANGES[how](pod)
    assert refused(place.operator, pod)


TEMPLATE_CHANGES: dict[str, Change] = {
    "with a token": lambda pod: pod["spec"].update(automountServiceAccountToken=True),
    "with a projected token": lambda pod: pod["spec"]["volumes"].append(
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    ),
    "with a folder of the node": lambda pod: pod["spec"]["volumes"].append(
        {"name": "node", "hostPath": {"path": "/"}}
    ),
    "in the node's network": lambda pod: pod["spec"].update(hostNetwork=True),
    "with the node's processes": lambda pod: pod["spec"].update(hostPID=True),
    "privileged": lambda pod: container(pod)["securityContext"].update(
        privileged=True, allowPrivilegeEscalation=True
    ),
    "with more privileges": lambda pod: container(pod)["securityContext"].update(
        allowPrivilegeEscalation=True
    ),
    "without a security context": lambda pod: container(pod).pop("securityContext"),
}


@pytest.mark.parametrize("how", list(TEMPLATE_CHANGES))
def test_no_pod_with_more_rights_is_rendered(place: Place, how: str) -> None:
    deployment, trainers = a_deployment(place.namespace), a_trainer(place.namespace)
    for manifest, template in (
        (deployment, deployment["spec"]["template"]),
        (trainers, trainers["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]),
    ):
        TEMPLATE_CHANGES[how](template)
        assert "may render no pod" in refused(place.operator, manifest)


def test_pods_that_are_no_longer_allowed_can_be_removed_and_nothing_else(place: Place) -> None:
    deployment = a_deployment(place.namespace)
    deployment["spec"] |= {"replicas": 2}
    TEMPLATE_CHANGES["in the node's network"](deployment["spec"]["template"])
    deployment["metadata"]["name"] = "job-open"
    stored = place.administrator.create(kinds.DEPLOYMENT, deployment)
    named = {"metadata": {key: stored["metadata"][key] for key in ("name", "namespace")}}
    changed = {"replicas": 0, "template": {"spec": {"hostPID": True}}}
    for spec in ({"replicas": 1}, changed):
        write = functools.partial(place.operator.merge, kinds.DEPLOYMENT, {**named, "spec": spec})
        assert "may render no pod" in refusal(write)
    place.operator.merge(kinds.DEPLOYMENT, {**named, "spec": {"replicas": 0}})
    again = functools.partial(
        place.operator.merge, kinds.DEPLOYMENT, {**named, "spec": {"replicas": 2}}
    )
    assert "may render no pod" in refusal(again)


def test_unowned_objects_are_neither_created_nor_changed_nor_deleted(place: Place) -> None:
    job, unowned = job_of(place.namespace), "that an RLJob or SamplerPool owns"
    config_map = objects.spec_config(job, RLJobSpec.model_validate(a_job()["spec"]), name="x")
    made = [
        a_trainer(place.namespace),
        a_deployment(place.namespace),
        objects.network_policy(job),
        config_map,
    ]
    for manifest in made:
        kind, foreign = KINDS[manifest["kind"]], copy.deepcopy(manifest)
        for key in ("ownerReferences", "labels"):
            del foreign["metadata"][key]
        assert unowned in refused(place.operator, foreign)
        stored = place.administrator.create(kind, foreign)["metadata"]
        if manifest is not config_map:  # the operator has no right to change one
            changed = functools.partial(
                place.operator.apply, kind, manifest, manager=names.SPEC_MANAGER
            )
            assert unowned in refusal(changed)
        if kind in (kinds.NETWORK_POLICY, kinds.PYTORCH_JOB):
            deleted = functools.partial(
                place.operator.delete, kind, place.namespace, stored["name"], uid=stored["uid"]
            )
            assert unowned in refusal(deleted)


@pytest.mark.parametrize("whose", ["web", "trainer", "sampler"])
def test_only_samplers_and_readers_are_annotated_and_deleted(place: Place, whose: str) -> None:
    mine = {"app": "web"} if whose == "web" else labels(job="job", run="run", component=whose)
    pod = {
        "apiVersion": kinds.POD.api_version,
        "kind": kinds.POD.name,
        "metadata": {"name": whose, "namespace": place.namespace, "labels": mine},
        "spec": {"containers": [{"name": "c", "image": "x:1"}]},
    }
    stored = place.administrator.create(kinds.POD, pod)["metadata"]
    image: Manifest = {
        "metadata": {"name": whose, "namespace": place.namespace},
        "spec": {"containers": [{"name": "c", "image": "y:1"}]},
    }
    assert refusal(lambda: place.operator.merge(kinds.POD, image))
    of_pod = (kinds.POD, place.namespace, whose)
    annotated = refusal(lambda: place.operator.annotate(*of_pod, {names.DELETION_COST: "1"}))
    deleted = refusal(lambda: place.operator.delete(*of_pod, uid=stored["uid"]))
    assert (annotated == "", deleted == "") == (whose == "sampler",) * 2


def test_only_the_leaders_lease_is_written_beside_those_of_runs(place: Place) -> None:
    lease: Manifest = {
        "apiVersion": kinds.LEASE.api_version,
        "kind": kinds.LEASE.name,
        "metadata": {"name": "rl-operator", "namespace": SYSTEM},
        "spec": {"holderIdentity": "x"},
    }
    stored = place.administrator.get(kinds.LEASE, SYSTEM, "rl-operator")
    if stored is None:
        assert refused(place.operator, lease) == ""
    else:
        assert refusal(lambda: place.operator.replace(kinds.LEASE, stored)) == ""
    lease["metadata"]["name"] = "other"
    assert refused(place.operator, lease)
    lease["metadata"]["namespace"] = place.namespace
    assert refused(place.operator, lease)
    lease["metadata"]["labels"] = dict(names.PART_OF)
    assert refused(place.operator, lease) == ""


def test_network_policies_select_pods_of_ours_alone(place: Place) -> None:
    readers = rendered.policy(place.namespace, system=SYSTEM)
    renamed = {**readers, "metadata": {**readers["metadata"], "name": "others"}}
    assert "that an RLJob or SamplerPool owns" in refused(place.operator, renamed)
    for policy in (readers, objects.network_policy(job_of(place.namespace))):
        policy["spec"]["podSelector"] = {"matchLabels": {"app": "web"}}
        assert "select pods of a run" in refused(place.operator, policy)
        policy["spec"]["podSelector"] = {}
        assert "select pods of a run" in refused(place.operator, policy)


def test_events_are_written_about_our_kinds_alone(place: Place) -> None:
    def event(api_version: str, kind: str) -> Manifest:
        return {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.name,
            "metadata": {"generateName": "e-", "namespace": place.namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "rl-operator.io/operator",
            "reportingInstance": "test",
            "action": "A",
            "reason": "R",
            "type": "Normal",
            "regarding": {
                "apiVersion": api_version,
                "kind": kind,
                "name": "x",
                "namespace": place.namespace,
            },
        }

    assert refused(place.operator, event(kinds.RLJOB.api_version, "RLJob")) == ""
    assert "Events about its kinds" in refused(place.operator, event("v1", "Pod"))


@pytest.mark.soak
def test_job_says_what_the_administrator_does_not_let_it_do(world: World, start: Starter) -> None:
    start("strict", "--require-queue")
    job = world.make_job()
    until(lambda: world.condition_now(job, "Stalled"), what="the job to stall")
    assert world.condition(job, "Stalled")["reason"] == "QueueRequired"
    beside = replace(world, namespace=SYSTEM)
    queued = beside.make_job("beside", scheduling={"provider": "Kueue", "queueName": "q"})
    try:
        until(lambda: beside.condition_now(queued, "Stalled"), what="the other job to stall")
        stalled = beside.condition(queued, "Stalled")
    finally:
        beside.clear()
    assert stalled["reason"] == "ChildRefused"
    assert "'rl-operator-writes.rl-system'" in stalled["message"]
    assert "no object of a job in this namespace" in stalled["message"]


def test_the_policy_is_for_the_operators_account_alone(place: Place) -> None:
    pod = a_reader("kube-system")
    READER_CHANGES["with another image"](pod)
    assert refused(place.administrator, pod) == ""
