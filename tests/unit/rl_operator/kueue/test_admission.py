"""What a queue says of a job, and what the job may have then."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable

import pytest

from rl_contracts.spec.status import Condition, RLJobStatus
from rl_contracts.spec.workers import MOST_SAMPLERS
from rl_operator.kube import names
from rl_operator.kube.api_errors import ApiHookError, ApiRefusedError, ClusterError
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Kind
from rl_operator.kube.names import FLAVORS_ANNOTATION
from rl_operator.kube.settings import DEFAULT_RULES
from rl_operator.kube.timestamps import format_time
from rl_operator.kueue import admission, gate, placement
from rl_operator.kueue.admission import Workload, hold, parse
from rl_operator.kueue.gate import Gate
from rl_operator.kueue.queueing import Queueing
from rl_operator.kueue.workload_marks import Flavor
from rl_operator.render import workload
from rl_operator.render.samplers import agents
from rl_operator.state.pod import Pod
from rl_operator.validation.refusals import of_spec
from tests.kube import kueue
from tests.unit.rl_operator.builders import (
    IMAGES,
    NOW,
    a_job_object,
    a_pod,
    a_snapshot,
    a_spec,
)
from tests.unit.rl_operator.kueue.workloads import (
    QUEUED,
    Raw,
    child_of,
    demand,
    pod_sets,
    stored,
)

SPOT = Flavor(node_labels={"pool": "spot"}, tolerations=({"key": "spot", "operator": "Exists"},))


def quota_of(quota: str) -> Raw:
    return {"scheduling": QUEUED["scheduling"] | {"samplerQuota": quota}}


def parsed(raw: Raw) -> Workload:
    return parse(child_of(raw))


def a_condition(kind: str, reason: str, since: float) -> Condition:
    """A condition of a job that is true."""
    return Condition(
        type=kind,
        status="True",
        reason=reason,
        observed_generation=1,
        last_transition_time=format_time(since),
    )


class TestWhatIsAsked:
    def test_each_group_has_a_pod_set_of_the_most_pods_it_takes_by_itself(self) -> None:
        scaled = {"mode": "Builtin", "minReplicas": 2, "maxReplicas": 6}
        samplers = [
            {"name": "main", "template": {"autoscaling": {"minReplicas": 3}}},
            {"name": "more", "template": {"autoscaling": scaled}},
        ]
        asked = pod_sets(demand(samplers=samplers, trainer={"replicas": 2}))
        counts = {name: pod_set["count"] for name, pod_set in asked.items()}
        assert counts == {"trainer": 2, "sampler-main": 3, "sampler-more": 6}

    @pytest.mark.parametrize(
        ("quota", "counts"),
        [
            ("MaxReplicas", {"trainer": 1, "sampler-main": 3, "sampler-more": 6}),
            ("MinReplicas", {"trainer": 1, "sampler-main": 3, "sampler-more": 2}),
            ("None", {"trainer": 1}),
        ],
    )
    def test_a_quota_may_hold_fewer_samplers(self, quota: str, counts: dict[str, int]) -> None:
        scaled = {"mode": "Builtin", "minReplicas": 2, "maxReplicas": 6}
        groups = [
            {"name": "main", "template": {"autoscaling": {"minReplicas": 3}}},
            {"name": "more", "template": {"autoscaling": scaled, "rollout": {"maxSurge": 0}}},
        ]
        sections = {"samplers": groups} | quota_of(quota)
        raw = stored(kueue.admitted, **sections)
        assert {name: pod_set["count"] for name, pod_set in pod_sets(raw).items()} == counts
        spec = a_spec(**QUEUED | sections)
        assert list(of_spec(spec)) == []
        assert placement.unusable(spec, parsed(raw), demand(**sections), {"spot": SPOT}) is None
        assert admission.sizes(spec, None) == {"main": 0, "more": 0}
        limit = MOST_SAMPLERS
        bounded = quota == "MaxReplicas"
        assert admission.sizes(spec, parsed(raw)) == {
            "main": 3 if bounded else limit,
            "more": 6 if bounded else limit,
        }
        granted = placement.granted(spec, parsed(raw), demand(**sections), {"spot": SPOT})
        selectors = {tuple(sampler.template.node_selector) for sampler in granted.samplers}
        assert selectors == {() if quota == "None" else ("pool",)}

    def test_an_elastic_trainer_may_be_admitted_with_less(self) -> None:
        elastic = {"replicas": 3, "elastic": {"minReplicas": 2, "maxReplicas": 5}}
        trainer = pod_sets(demand(trainer=elastic))["trainer"]
        assert (trainer["count"], trainer["minCount"]) == (3, 2)

    def test_all_containers_of_a_pod_count_and_nothing_else_is_told(self) -> None:
        resources = {"limits": {"nvidia.com/gpu": 1}}
        samplers = [{"name": "main", "template": {"resources": resources}}]
        sidecar = {"name": "sidecar", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        template = {"spec": {"containers": [sidecar], "runtimeClassName": "nvidia"}}
        asked = pod_sets(demand(samplers=samplers, trainer={"podTemplate": template}))
        pod = asked["sampler-main"]["template"]["spec"]
        engine = next(
            init_container
            for init_container in pod["initContainers"]
            if init_container["name"] == "engine"
        )
        assert engine == {
            "name": "engine",
            "image": "e:1",
            "resources": resources,
            "restartPolicy": "Always",
        }
        assert pod["containers"][0]["resources"]["requests"] == agents.REQUESTS
        trainer = asked["trainer"]["template"]["spec"]
        assert [container["name"] for container in trainer["containers"]] == ["pytorch", "sidecar"]
        assert trainer["runtimeClassName"] == "nvidia"
        assert "volumes" not in trainer

    def test_the_pods_priority_is_the_workloads_unless_the_queue_has_one(self) -> None:
        of_pods = a_spec(**QUEUED, trainer={"priorityClassName": "high"})
        chosen = workload.priority_class(of_pods)
        assert chosen is not None
        assert (chosen.kind.group, chosen.name) == ("scheduling.k8s.io", "high")
        both = {**QUEUED["scheduling"], "workloadPriorityClassName": "urgent"}
        chosen = workload.priority_class(
            a_spec(scheduling=both, trainer={"priorityClassName": "high"})
        )
        assert chosen is not None
        assert (chosen.kind.group, chosen.name) == ("kueue.x-k8s.io", "urgent")
        assert workload.priority_class(a_spec(**QUEUED)) is None


def evicted(raw: Raw) -> Raw:
    return kueue.evicted({**raw, "status": kueue.admitted(raw)})


def checked(raw: Raw) -> Raw:
    """Quota is reserved; an admission check is not done."""
    status = kueue.admitted(raw)
    for condition in status["conditions"]:
        condition["status"] = "False" if condition["type"] == "Admitted" else condition["status"]
    check = {"name": "capacity", "state": "Pending", "message": "nodes are on their way"}
    return {**status, "admissionChecks": [check]}


WORDS: dict[str, tuple[Raw | None, str, str]] = {
    "no Workload": (
        None,
        "NotQueued",
        "Workload for LocalQueue team is about to be created.",
    ),
    "nothing said": (stored(), "Pending", "Check that LocalQueue team exists"),
    "no room": (
        stored(lambda raw: kueue.pending(raw, "insufficient quota")),
        "Pending",
        "insufficient quota",
    ),
    "no such queue": (
        stored(lambda raw: kueue.pending(raw, "no LocalQueue team", reason="Inadmissible")),
        "Inadmissible",
        "no LocalQueue team",
    ),
    "a check": (stored(checked), "AdmissionChecks", "capacity Pending: nodes are on their way"),
    "evicted": (stored(evicted), "Preempted", "Preempted to make room"),
    "taken out": (
        {**stored(kueue.admitted), "spec": {**demand()["spec"], "active": False}},
        "Deactivated",
        "Set its spec.active to true",
    ),
}


@pytest.mark.parametrize(("raw", "reason", "message"), WORDS.values(), ids=WORDS)
def test_held_job_shows_the_queues_reason_and_message(
    raw: Raw | None, reason: str, message: str
) -> None:
    held = hold(parsed(raw) if raw is not None else None, demand(), "team")
    assert held is not None
    assert held.reason == reason
    assert message in held.message


def test_an_admitted_job_is_not_held_back() -> None:
    assert hold(parsed(stored(kueue.admitted)), demand(), "team") is None


class TestWhatIsAdmitted:
    def test_flavors_and_checks_say_on_which_nodes(self) -> None:
        raw = stored(kueue.admitted)
        update = {
            "name": "trainer",
            "labels": {"a": "1"},
            "annotations": {"b": "2"},
            "nodeSelector": {"zone": "z"},
            "tolerations": [{"key": "new", "operator": "Exists"}],
        }
        raw["status"]["admissionChecks"] = [
            {"name": "capacity", "state": "Ready", "podSetUpdates": [update]}
        ]
        own = {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "own"}]}
        flavors = {"spot": SPOT}
        spec = placement.granted(a_spec(**QUEUED, trainer=own), parsed(raw), demand(), flavors)
        assert spec.trainer.node_selector == {"disk": "fast", "pool": "spot", "zone": "z"}
        assert [toleration["key"] for toleration in spec.trainer.tolerations] == [
            "own",
            "spot",
            "new",
        ]
        assert spec.trainer.pod_template == {
            "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}
        }
        assert spec.samplers[0].template.node_selector == {"pool": "spot"}
        assert spec.samplers[0].template.pod_template is None

    def test_fewer_trainers_are_all_there_are(self) -> None:
        bounds = {"minReplicas": 1, "maxReplicas": 5, "maxRestarts": 7}
        trainer = {"replicas": 3, "elastic": bounds}
        raw = stored(
            lambda manifest: kueue.admitted(manifest, counts={"trainer": 2}), trainer=trainer
        )
        spec = a_spec(**QUEUED, trainer=trainer)
        spec = placement.granted(spec, parsed(raw), demand(trainer=trainer), {"spot": SPOT})
        assert spec.trainer.elastic is not None
        assert spec.trainer.elastic.max_restarts == 7
        sizes = (spec.trainer.replicas, spec.trainer.elastic.max_replicas)
        assert sizes == (2, 2)

    @pytest.mark.parametrize(
        ("reason", "change", "flavors"),
        [
            ("FlavorNotFound", {}, {"spot": None}),
            ("FlavorConflict", {"trainer": {"nodeSelector": {"pool": "mine"}}}, {"spot": SPOT}),
        ],
    )
    def test_what_cannot_be_carried_out_is_told(
        self, reason: str, change: Raw, flavors: dict[str, Flavor | None]
    ) -> None:
        raw, spec = stored(kueue.admitted, **change), a_spec(**QUEUED, **change)
        problem = placement.unusable(spec, parsed(raw), demand(**change), flavors)
        assert problem is not None
        assert problem.reason == reason

    def test_a_placement_by_topology_is_refused(self) -> None:
        raw = stored(kueue.admitted)
        first = raw["status"]["admission"]["podSetAssignments"][0]
        first["topologyAssignment"] = {"levels": ["rack"], "slices": []}
        problem = placement.unusable(a_spec(**QUEUED), parsed(raw), demand(), {"spot": SPOT})
        assert problem is not None
        assert (problem.reason, "spec.scheduling.queueName = 'team'" in problem.message) == (
            "TopologyUnsupported",
            True,
        )


ADMITTED_AT = NOW - 1000


@pytest.mark.parametrize(
    ("status", "pods", "leaves"),
    [
        (kueue.admitted, (), True),
        (kueue.admitted, (a_pod("sampler"),), False),
        (lambda raw: kueue.pending(raw, "no room"), (), True),
    ],
)
def test_job_with_refused_inputs_leaves_its_queue_once_it_has_no_pods(
    status: Callable[[Raw], Raw], pods: tuple[Pod, ...], leaves: bool
) -> None:
    child = child_of(stored(status))
    children = {("Workload", "rljob-job"): child}
    snapshot = a_snapshot(job=a_job_object(**QUEUED), children=children, pods=pods)
    kept = Gate(spec=snapshot.job.spec, status={"status": {}})
    left = gate.refused(snapshot, kept, outage=False, now=NOW)
    assert left == (dataclasses.replace(kept, drop=child, status=None) if leaves else kept)


@pytest.mark.parametrize(
    ("status", "began", "now", "leaves"),
    [
        (kueue.admitted, ADMITTED_AT - 9e6, ADMITTED_AT + 1800, False),
        (kueue.admitted, ADMITTED_AT - 9e6, ADMITTED_AT + 1801, True),  # others may use the quota
        (kueue.admitted, ADMITTED_AT + 9e6, ADMITTED_AT + 9e6 + 1800, False),
        (kueue.admitted, ADMITTED_AT + 9e6, ADMITTED_AT + 9e6 + 1801, True),
        (kueue.admitted, None, ADMITTED_AT + 9e6, False),
        (checked, ADMITTED_AT, ADMITTED_AT + 9e6, False),  # its quota is reserved
        (lambda raw: kueue.pending(raw, "no room"), ADMITTED_AT, ADMITTED_AT + 9e6, False),
    ],
)
def test_admitted_job_gives_its_quota_back_only_after_a_long_outage(
    status: Callable[[Raw], Raw], began: float | None, now: float, leaves: bool
) -> None:
    raw = stored(status)
    for condition in raw["status"]["conditions"]:
        condition["lastTransitionTime"] = format_time(ADMITTED_AT)
    child = child_of(raw)
    stalled = [a_condition("Stalled", "StorageUnreachable", began)] if began is not None else []
    job = a_job_object(RLJobStatus(conditions=stalled), **QUEUED)
    snapshot = a_snapshot(job=job, children={("Workload", "rljob-job"): child})
    kept = Gate(spec=snapshot.job.spec, status={"status": {}})
    left = gate.refused(snapshot, kept, outage=True, now=now)
    assert left == (dataclasses.replace(kept, drop=child, status=None) if leaves else kept)


class Flavors:
    """An API server that has them all."""

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return kueue.flavor(name)

    def merge(self, kind: Kind, manifest: Raw, *, subresource: str = "") -> Raw:
        raise AssertionError(f"{kind.name} is written")


class NoCluster:
    """Nothing is asked and nothing written."""

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        raise AssertionError(f"{kind.name} {name} is asked for")

    def merge(self, kind: Kind, manifest: Raw, *, subresource: str = "") -> Raw:
        raise AssertionError(f"{kind.name} is written")


def gate_of(raw: Raw, cluster: Flavors | NoCluster) -> Gate:
    """What a new process lets a job of this Workload have."""
    queueing = Queueing(
        cluster=cluster, images=IMAGES, enabled=True, now=lambda: NOW, rules=DEFAULT_RULES
    )
    children = {("Workload", "rljob-job"): child_of(raw)}
    _, queue_gate = queueing.gate(
        a_snapshot(job=a_job_object(**QUEUED), children=children), refused=lambda: False
    )
    assert queue_gate is not None
    return queue_gate


def nodes_of(queue_gate: Gate) -> dict[str, str]:
    assert queue_gate.spec is not None
    assert queue_gate.stall is None
    return queue_gate.spec.trainer.node_selector


def test_an_admission_keeps_its_flavors_whatever_becomes_of_them() -> None:
    raw = stored(kueue.admitted)
    first = gate_of(raw, Flavors())
    assert first.mark is not None
    raw["metadata"]["annotations"] |= first.mark["metadata"]["annotations"]
    again = gate_of(raw, NoCluster())
    assert again.spec == first.spec
    assert (nodes_of(again), again.mark) == ({"pool": "spot"}, None)

    for condition in raw["status"]["conditions"]:  # admitted again
        condition["lastTransitionTime"] = "2026-01-01T00:00:07Z"
    assert gate_of(raw, Flavors()).mark is not None


def test_a_flavor_that_did_not_exist_at_the_admission_is_asked_for_again() -> None:
    raw = stored(kueue.admitted)
    first = gate_of(raw, Flavors())
    assert first.mark is not None
    recorded = first.mark["metadata"]["annotations"]
    record = json.loads(recorded[FLAVORS_ANNOTATION])
    absent = record | {"flavors": dict.fromkeys(record["flavors"])}
    raw["metadata"]["annotations"] |= recorded | {FLAVORS_ANNOTATION: json.dumps(absent)}
    again = gate_of(raw, Flavors())
    assert nodes_of(again) == {"pool": "spot"}
    assert again.mark is not None, "it is recorded now"
    assert json.loads(again.mark["metadata"]["annotations"][FLAVORS_ANNOTATION]) == record


@pytest.mark.parametrize("edited", ["", "{", "[]", '{"flavors": {"spot": 1}, "admitted": 1}'])
def test_a_record_of_flavors_that_somebody_has_spoilt_is_made_again(edited: str) -> None:
    raw = stored(kueue.admitted)
    raw["metadata"]["annotations"][names.FLAVORS_ANNOTATION] = edited
    queue_gate = gate_of(raw, Flavors())
    assert nodes_of(queue_gate) == {"pool": "spot"}
    assert queue_gate.mark is not None


def test_second_admission_within_a_second_has_its_own_flavors() -> None:
    annotations: dict[str, str] = {}
    for name in ("spot", "owned"):
        raw = stored(functools.partial(kueue.admitted, name=name))
        raw["metadata"]["annotations"] |= annotations
        for condition in raw["status"]["conditions"]:
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        queue_gate = gate_of(raw, Flavors())
        assert nodes_of(queue_gate) == {"pool": name}
        assert queue_gate.mark is not None
        annotations = queue_gate.mark["metadata"]["annotations"]


class Refusing(NoCluster):
    """An API server, or a webhook, that takes no Workload."""

    def __init__(self, kind: type[ClusterError], status: int) -> None:
        self.kind, self.status = kind, status

    def merge(self, kind: Kind, manifest: Raw, *, subresource: str = "") -> Raw:
        path = kind.path("ns", manifest["metadata"]["name"], subresource)
        raise self.kind(doing=f"PATCH {path}", status=self.status, message="no")


CHANGE: Raw = {"metadata": {"name": "rljob-job"}}


@pytest.mark.parametrize("due", [Gate(spec=None, mark=CHANGE), Gate(spec=None, status=CHANGE)])
@pytest.mark.parametrize(
    ("kind", "status", "prevents"),
    [
        (
            ApiHookError,
            500,
            (
                None,
                "workloads/rljob-job cannot be written for now, and is tried again: no",
            ),
        ),
        (
            ApiRefusedError,
            403,
            (
                Stall(
                    reason="ChildRefused",
                    message="The API server refused to update Workload rljob-job: no",
                ),
                "",
            ),
        ),
    ],
)
def test_a_workload_that_cannot_be_written_is_reported(
    kind: type[ClusterError], status: int, prevents: tuple[Stall | None, str], due: Gate
) -> None:
    queueing = Queueing(
        cluster=Refusing(kind, status),
        images=IMAGES,
        enabled=True,
        now=lambda: NOW,
        rules=DEFAULT_RULES,
    )
    updated = queueing.update_workload(due)
    assert (updated.stall, updated.blocked_reason) == prevents
    over = [a_condition("Complete", "Succeeded", NOW)]
    job = a_job_object(RLJobStatus(conditions=over), **QUEUED)
    children = {("Workload", "rljob-job"): child_of(stored(kueue.admitted))}
    finished = queueing.finish(a_snapshot(job=job, children=children))
    assert (finished.stall, finished.blocked_reason) == prevents


@pytest.mark.parametrize(
    ("enabled", "has_kind", "reason"),
    [(False, True, "KueueSwitchedOff"), (True, False, "KueueMissing")],
)
def test_a_job_without_kueue_starts_nothing_and_says_why(
    enabled: bool, has_kind: bool, reason: str
) -> None:
    queueing = Queueing(
        cluster=NoCluster(), images=IMAGES, enabled=enabled, now=lambda: NOW, rules=DEFAULT_RULES
    )
    snapshot, queue_gate = queueing.gate(
        a_snapshot(job=a_job_object(**QUEUED), has_queue_kind=has_kind), refused=lambda: False
    )
    assert queue_gate is not None
    assert queue_gate.stall is not None
    assert (queue_gate.stall.reason, queue_gate.make, queue_gate.sizes) == (
        reason,
        None,
        {"main": 0},
    )
    assert "spec.scheduling.provider = 'Kueue'" in queue_gate.stall.message
    assert snapshot.job.suspended


def test_job_without_a_queue_is_not_held() -> None:
    queueing = Queueing(
        cluster=NoCluster(), images=IMAGES, enabled=True, now=lambda: NOW, rules=DEFAULT_RULES
    )
    snapshot, queue_gate = queueing.gate(a_snapshot(), refused=lambda: False)
    assert snapshot.job.spec is not None
    assert queue_gate == Gate(spec=snapshot.job.spec)
    assert not snapshot.job.suspended
