"""Plans lead to what is wanted, from wherever one begins, and then to nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.kube import kinds, names
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.metadata import Child, Meta
from rl_operator.kube.plan import Apply, Conflict, Create, Delete, Plan, Wanted, plan
from rl_operator.render import job as desired
from rl_operator.render import pool
from rl_operator.state.snapshot import Job
from tests.unit.rl_operator.builders import (
    IMAGES,
    RUN,
    a_failure,
    a_job_object,
    a_meta,
    a_spec,
    config_name,
)
from tests.unit.rl_operator.model_cluster import ModelCluster

JOB = a_job_object()
GROUPS: list[list[dict[str, Any]]] = [
    [{"name": "main"}],
    [{"name": "main", "template": {"autoscaling": {"minReplicas": 3}}}, {"name": "other"}],
    [{"name": "other", "template": {"engine": {"args": ["--x"]}}}],
]


def planned(cluster: ModelCluster, job: Job, *, run_trainer: bool) -> Plan:
    assert job.spec is not None
    snapshot = cluster.snapshot(job)
    wanted = desired.wanted(
        snapshot, job.spec, checked=True, run_trainer=run_trainer, images=IMAGES
    )
    unwanted = desired.unwanted(snapshot, job.spec)
    return plan(wanted, unwanted, observed=snapshot.children, owner_uid=RUN)


def settle(cluster: ModelCluster, job: Job, *, run_trainer: bool) -> None:
    for action in planned(cluster, job, run_trainer=run_trainer).actions:
        cluster.perform(action)


def a_job_in(groups: list[dict[str, Any]], attempt: int, *, ended: bool) -> Job:
    failure = a_failure(attempt) if ended and attempt else None
    return a_job_object(RLJobStatus(attempt=attempt, last_failure=failure), samplers=groups)


JOBS = st.builds(a_job_in, st.sampled_from(GROUPS), st.integers(0, 4), ended=st.booleans())


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(JOBS, st.integers(0, 9), st.booleans()), min_size=1, max_size=6))
def test_plans_converge_after_any_crash_and_then_hold_no_action(
    history: list[tuple[Job, int, bool]],
) -> None:
    cluster = ModelCluster()
    for job, done, trainer_ends in history:
        run = job.status.attempt > 0 and job.status.last_failure is None
        for action in planned(cluster, job, run_trainer=run).actions[:done]:
            cluster.perform(action)  # the operator dies after some of them
        settle(cluster, job, run_trainer=run)
        if trainer_ends and run:
            cluster.finish(job.status.attempt, "Failed")
    settle(cluster, job, run_trainer=run)
    before = cluster.writes
    settle(cluster, job, run_trainer=run)
    assert cluster.writes == before
    assert job.spec is not None
    pools = {name for kind, name in cluster.objects if kind == "SamplerPool"}
    assert pools == {names.pool("job", sampler.name) for sampler in job.spec.samplers}


def test_the_first_pass_creates_everything_in_order() -> None:
    job = a_job_object(RLJobStatus(attempt=1))
    actions = [str(action) for action in planned(ModelCluster(), job, run_trainer=True).actions]
    assert actions == [
        f"create ConfigMap {config_name()}",
        f"create ConfigMap {names.trainer_config('job', a_spec())}",
        "create NetworkPolicy job",
        "create SamplerPool job-main",
        "create PyTorchJob job-1",
    ]


def test_what_stops_pods_and_gives_back_quota_comes_first_and_other_deletions_last() -> None:
    cluster = ModelCluster()
    settle(cluster, a_job_in(GROUPS[1], 1, ended=False), run_trainer=True)
    edited: list[dict[str, Any]] = [{"name": "other", "template": {"maxConcurrentGroups": 5}}]
    queued = a_job_in(edited, 1, ended=True)
    assert queued.spec is not None
    snapshot = cluster.snapshot(queued)
    wanted = desired.wanted(
        snapshot,
        queued.spec,
        checked=True,
        run_trainer=False,
        images=IMAGES,
        admitted={"other": 0},
    )
    place = Child(kind="Workload", meta=a_meta("rlop-job", owner_uid=RUN), raw={})
    unwanted = [*desired.unwanted(snapshot, queued.spec), place]
    actions = plan(wanted, unwanted, observed=snapshot.children, owner_uid=RUN).actions
    assert [str(action) for action in actions] == [
        "delete PyTorchJob job-1",
        "apply SamplerPool job-other",
        "delete Workload rlop-job",
        f"create ConfigMap {names.spec_config('job', queued.spec, 'other')}",
        "delete SamplerPool job-main",
    ]


def test_an_earlier_attempt_s_trainer_is_deleted_after_the_next_one_is_made() -> None:
    cluster = ModelCluster()
    for attempt in (1, 2):
        settle(cluster, a_job_object(RLJobStatus(attempt=attempt)), run_trainer=True)
        cluster.finish(attempt, "Failed")
    job = a_job_object(RLJobStatus(attempt=3), lifecycle={"attemptHistoryLimit": 1})
    actions = [str(action) for action in planned(cluster, job, run_trainer=True).actions]
    assert actions[-2:] == ["create PyTorchJob job-3", "delete PyTorchJob job-1"]


def test_no_pool_is_made_before_the_inputs_are_checked() -> None:
    snapshot = ModelCluster().snapshot(JOB)
    assert JOB.spec is not None
    wanted = desired.wanted(snapshot, JOB.spec, checked=False, run_trainer=False, images=IMAGES)
    assert [manifest.reference[0] for manifest in wanted] == ["ConfigMap"]


def test_only_the_first_write_of_a_pool_names_its_replicas() -> None:
    cluster = ModelCluster()
    settle(cluster, JOB, run_trainer=False)
    stored = cluster.objects[("SamplerPool", "job-main")]
    assert stored["spec"]["replicas"] == 2
    stored["spec"]["replicas"] = 7  # kubectl scale
    before = cluster.writes
    settle(cluster, JOB, run_trainer=False)
    assert (cluster.writes, stored["spec"]["replicas"]) == (before, 7)
    edited = a_job_object(
        samplers=[{"name": "main", "template": {"autoscaling": {"minReplicas": 5}}}]
    )
    settle(cluster, edited, run_trainer=False)
    assert stored["spec"]["replicas"] == 7


def test_a_pool_without_its_template_is_completed() -> None:
    cluster = ModelCluster()
    bare = pool.render(JOB.meta, a_spec().samplers[0])
    bare["spec"] = {"job": "job", "replicas": 2}  # as earlier versions began
    del bare["metadata"]["annotations"]
    cluster.perform(Create(kind=kinds.SAMPLER_POOL, manifest=bare))
    applied = [
        action
        for action in planned(cluster, JOB, run_trainer=False).actions
        if action.kind == kinds.SAMPLER_POOL
    ]
    assert [type(action) for action in applied] == [Apply]


def test_foreign_edits_are_repaired() -> None:
    cluster = ModelCluster()
    settle(cluster, JOB, run_trainer=False)
    cluster.objects[("NetworkPolicy", "job")]["spec"]["ingress"] = []
    actions = planned(cluster, JOB, run_trainer=False).actions
    assert [str(action) for action in actions] == ["apply NetworkPolicy job"]


def test_the_mounted_spec_is_immutable() -> None:
    """So nobody can edit it, and the API server has no watch of it to serve to kubelets."""
    cluster = ModelCluster()
    settle(cluster, JOB, run_trainer=False)
    assert cluster.objects[("ConfigMap", config_name())]["immutable"] is True


def test_a_trainer_is_never_changed_once_it_is_there() -> None:
    cluster = ModelCluster()
    job = a_job_object(RLJobStatus(attempt=1))
    settle(cluster, job, run_trainer=True)
    cluster.objects[("PyTorchJob", "job-1")]["spec"] = {}
    assert planned(cluster, job, run_trainer=True).actions == ()


ATTEMPTS = {
    "one old one stays for its logs": ([(1, "Failed"), (2, "Failed")], 3, False, ["job-1"]),
    "an old active one goes": ([(2, None)], 3, False, ["job-2"]),
    "an ended attempt's active one goes": ([(3, None)], 3, True, ["job-3"]),
    "the current one stays": ([(3, None)], 3, False, []),
}


@pytest.mark.parametrize(
    ("trainers", "attempt", "ended", "gone"), ATTEMPTS.values(), ids=ATTEMPTS.keys()
)
def test_old_trainers_are_deleted(
    trainers: list[tuple[int, str | None]], attempt: int, ended: bool, gone: list[str]
) -> None:
    cluster = ModelCluster()
    for ordinal, state in trainers:
        settle(cluster, a_job_object(RLJobStatus(attempt=ordinal)), run_trainer=True)
        if state:
            cluster.finish(ordinal, state)
    failure = a_failure(attempt) if ended else None
    job = a_job_object(RLJobStatus(attempt=attempt, last_failure=failure))
    deleted = [
        action.name
        for action in planned(cluster, job, run_trainer=False).actions
        if isinstance(action, Delete)
    ]
    assert deleted == gone


CLEANUPS: dict[str, tuple[str, list[str]]] = {
    "workers": ("Workers", ["job-main"]),
    "nothing": ("None", []),
    "all": ("All", ["job-1", "job-2", "job-main"]),
}


@pytest.mark.parametrize(("policy", "gone"), CLEANUPS.values(), ids=CLEANUPS.keys())
def test_a_finished_job_is_cleaned_up_by_its_policy(policy: str, gone: list[str]) -> None:
    cluster = ModelCluster()
    for attempt in (1, 2):
        settle(cluster, a_job_object(RLJobStatus(attempt=attempt)), run_trainer=True)
        cluster.finish(attempt, "Failed")
    failed = Condition(
        type="Failed",
        status="True",
        reason="R",
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    status = RLJobStatus(attempt=2, last_failure=a_failure(2), conditions=[failed])
    job = a_job_object(status, lifecycle={"cleanupPolicy": policy})
    snapshot = cluster.snapshot(job)
    assert sorted(child.meta.name for child in desired.unwanted(snapshot, job.spec)) == gone


@pytest.mark.parametrize(("limit", "kept"), [(0, ["job-4"]), (2, ["job-2", "job-3", "job-4"])])
def test_old_attempts_stay_as_many_as_wanted(limit: int, kept: list[str]) -> None:
    cluster = ModelCluster()
    for attempt in range(1, 5):
        settle(
            cluster,
            a_job_object(RLJobStatus(attempt=attempt), lifecycle={"attemptHistoryLimit": 5}),
            run_trainer=True,
        )
        cluster.finish(attempt, "Failed")
    job = a_job_object(RLJobStatus(attempt=4), lifecycle={"attemptHistoryLimit": limit})
    settle(cluster, job, run_trainer=False)
    assert sorted(name for kind, name in cluster.objects if kind == "PyTorchJob") == kept


def foreign(**changes: Any) -> Child:
    manifest = wanted_pool().manifest
    meta = dataclasses.replace(a_meta("job-main"), **changes)
    return Child(kind="SamplerPool", meta=meta, raw=manifest)


def wanted_pool() -> Wanted:
    return Wanted(manifest=pool.render(JOB.meta, a_spec().samplers[0]))


TAKEN = {
    "nobody owns it": ({"owner_uid": ""}, False),
    "another controller owns it": ({"owner_uid": "other"}, False),
    "it is going": ({"owner_uid": "other", "deleted_at": 1.0}, True),
    "an earlier job of this name had it": (
        {"owner_uid": "old", "annotations": {names.APPLIED_ANNOTATION: "x"}},
        True,
    ),
}


@pytest.mark.parametrize(("changes", "going"), TAKEN.values(), ids=TAKEN.keys())
def test_a_taken_name_is_never_written(changes: dict[str, Any], going: bool) -> None:
    child = foreign(**changes)
    key = ("SamplerPool", "job-main")
    made = plan([wanted_pool()], [child], observed={key: child}, owner_uid=RUN)
    assert made.actions == ()
    assert made.conflicts == (Conflict(kind="SamplerPool", name="job-main", deleting=going),)


def test_a_pool_name_that_two_jobs_derive_stays_with_the_first() -> None:
    two = [("a-b", "c"), ("a", "b-c")]
    first, second = (
        pool.render(a_meta(job, uid=job), a_spec(samplers=[{"name": group}]).samplers[0])
        for job, group in two
    )
    cluster = ModelCluster()
    cluster.perform(Create(kind=kinds.SAMPLER_POOL, manifest=first))
    raw = cluster.objects[("SamplerPool", "a-b-c")]
    child = Child(kind="SamplerPool", meta=Meta.parse(raw), raw=raw)
    made = plan(
        [Wanted(manifest=second)], [], observed={("SamplerPool", "a-b-c"): child}, owner_uid="a"
    )
    assert made == Plan(conflicts=(Conflict(kind="SamplerPool", name="a-b-c", deleting=False),))


def test_an_apply_is_conditional_on_the_version_that_was_seen() -> None:
    cluster = ModelCluster()
    settle(cluster, JOB, run_trainer=False)
    edited = a_job_object(samplers=[{"name": "main", "template": {"maxConcurrentGroups": 2}}])
    stale = planned(cluster, edited, run_trainer=False).actions
    settle(cluster, edited, run_trainer=False)
    (change,) = [
        action
        for action in stale
        if isinstance(action, Apply) and action.kind.name == "SamplerPool"
    ]
    assert change.manifest["metadata"]["resourceVersion"] == "1"
    with pytest.raises(ApiConflictError):
        cluster.perform(change)
