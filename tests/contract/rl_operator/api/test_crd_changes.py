"""What may change after it was accepted: by sections of a job, and a pool's size."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.spec.resources import FIXED_ONCE_STARTED
from tests.chaos.operator_cluster.edits import LIFECYCLE, TEMPLATE, WHILE_SUSPENDED
from tests.kube.apiserver import ApiServer, apply
from tests.samples.manifests import a_job, changed

Manifest = dict[str, Any]
FIXED: dict[str, tuple[str, Any]] = {
    "model": ("spec.model.uri", "s3://rl-data/models/other"),
    "data": ("spec.data.train.0.name", "other"),
    "agent": ("spec.agent.systemPrompt", "Be brief."),
    "reward": ("spec.reward.answerSchema", "Raw"),
    "code": ("spec.code", {"configMapRef": {"name": "mine"}}),
    "algorithm": ("spec.algorithm.groupSize", 4),
    "rollouts": ("spec.rollouts.maxAttempts", 4),
    "training": ("spec.training.seed", 7),
    "storage": ("spec.storage.secretName", "other"),
    "weightSync": ("spec.weightSync.everySteps", 2),
}


RUNS_PROGRAMS = {"kind": "ToolLoop", "builtInTools": ["Python"]}
NAMED = {"training": "training.seed"}
"""Sections that are compared by fields: a refusal names the field."""


@pytest.mark.parametrize(("section", "change"), FIXED.items(), ids=FIXED.keys())
def test_a_section_is_fixed_once_the_trainer_has_started(
    apiserver: ApiServer, section: str, change: tuple[str, Any]
) -> None:
    name = f"fixed-{section.lower()}"

    def edited(*, started: bool) -> str:
        manifest = changed(*change)
        manifest["metadata"]["name"] = name
        if started:  # back to the first form, which is another change
            manifest["spec"] = a_job()["spec"]
        return apply(apiserver, manifest)

    assert apply(apiserver, a_job(name)) == ""
    assert edited(started=False) == ""
    _set_status(apiserver, name, {"attempt": 1, "observedGeneration": 1})
    path = NAMED.get(section, section)
    assert f"spec.{path} cannot change once the trainer has been started" in edited(started=True)


def raised(name: str, *, steps: int = 70, **more: object) -> Manifest:
    manifest = changed("spec.training.steps", steps)
    manifest["metadata"]["name"] = name
    manifest["spec"] |= more
    return manifest


def test_steps_are_raised_while_the_job_is_suspended(apiserver: ApiServer) -> None:
    name = "longer"
    assert apply(apiserver, a_job(name)) == ""
    _set_status(apiserver, name, {"attempt": 1, "phase": "Running", "observedGeneration": 1})
    assert "spec.training.steps can only be raised" in apply(apiserver, raised(name))
    assert apply(apiserver, a_job(name) | {"spec": a_job()["spec"] | {"suspend": True}}) == ""
    # Its pods still end: an attempt that reaches its last step now would know nothing of more.
    assert "set spec.suspend first" in apply(apiserver, raised(name, suspend=True))
    _set_status(apiserver, name, {"phase": "Suspended"})
    assert "can only be raised" in apply(apiserver, raised(name, steps=50, suspend=True))
    assert apply(apiserver, raised(name, suspend=False)) == ""
    assert "can only be raised" in apply(apiserver, raised(name, steps=80))


def test_fixed_section_cannot_be_added_in_a_status_write(apiserver: ApiServer) -> None:
    name = "fixed-beside"
    assert apply(apiserver, a_job(name)) == ""
    _set_status(apiserver, name, {"attempt": 1, "observedGeneration": 1})
    before = apiserver.get("rljob", name)
    both = json.dumps({"spec": {"training": {"seed": 7}}, "status": {"attempt": 2}})
    refused = apiserver.kubectl("patch", "rljob", name, "--type=merge", "-p", both, check=False)
    assert "spec.training.seed cannot change once the trainer has been started" in refused.stderr
    apiserver.kubectl("patch", "rljob", name, "--subresource=status", "--type=merge", "-p", both)
    stored = apiserver.get("rljob", name)
    assert stored["status"]["attempt"] == 2
    assert stored["spec"]["training"] == before["spec"]["training"]


def test_no_fixed_section_is_forgotten() -> None:
    assert {*FIXED, "placement"} == set(FIXED_ONCE_STARTED)


def test_placement_is_fixed_once_the_trainer_has_started(apiserver: ApiServer) -> None:
    name, groups = "fixed-placement", [{"name": "main"}]
    assert apply(apiserver, a_job(name, samplers=groups)) == ""
    _set_status(apiserver, name, {"attempt": 1, "observedGeneration": 1})
    refused = apply(apiserver, a_job(name, samplers=groups, placement="Colocated"))
    assert "spec.placement cannot change once the trainer has been started" in refused


def test_everything_else_may_change_after_the_start(apiserver: ApiServer) -> None:
    manifest = a_job("mutable", agent=RUNS_PROGRAMS)
    assert apply(apiserver, manifest) == ""
    _set_status(apiserver, "mutable", {"attempt": 1, "observedGeneration": 1})
    spec = manifest["spec"]
    template = spec["samplers"][0]["template"]
    changes: list[tuple[Manifest, Manifest]] = [
        (spec, {"networkPolicy": "None"}),
        (spec, {"sandbox": {"slots": 2}}),
        (spec, {"suspend": True}),
        (spec.setdefault("lifecycle", {}), {"failurePolicy": {"rules": []}}),
        *((spec["lifecycle"], {field: value}) for field, value in LIFECYCLE.items()),
        (template, {"maxConcurrentGroups": 2}),
        (template["autoscaling"], {"minReplicas": 3}),
        *((template, change) for change, _, _ in TEMPLATE.values()),
        (spec, {"samplers": [*spec["samplers"], {"name": "more"}]}),
        (spec, {"stop": True}),
    ]
    for place, change in changes:
        place.update(change)
        assert apply(apiserver, manifest) == "", change


@pytest.mark.parametrize(("section", "value"), WHILE_SUSPENDED.items(), ids=WHILE_SUSPENDED)
def test_trainer_and_scheduling_change_while_suspended(
    apiserver: ApiServer, section: str, value: Manifest
) -> None:
    name = f"while-{section}"
    assert apply(apiserver, a_job(name)) == ""
    _set_status(apiserver, name, {"attempt": 1, "observedGeneration": 1})
    edited: Manifest = {section: value}
    refused = apply(apiserver, a_job(name, **edited))
    assert f"spec.{section} cannot change while the trainer runs" in refused
    assert apply(apiserver, a_job(name, suspend=True)) == ""
    assert apply(apiserver, a_job(name, suspend=True, **edited)) == ""


def test_a_pool_scales_through_its_subresource(apiserver: ApiServer) -> None:
    pool = {
        "apiVersion": "rl-operator.io/v1alpha1",
        "kind": "SamplerPool",
        "metadata": {"name": "scaled", "namespace": "default"},
        "spec": {"job": "job"},
    }
    assert apply(apiserver, pool) == ""
    apiserver.kubectl("scale", "samplerpool/scaled", "--replicas=3")
    assert apiserver.get("samplerpool", "scaled")["spec"]["replicas"] == 3
    refused = apiserver.kubectl("scale", "spool/scaled", "--replicas=2001", check=False)
    assert "spec.replicas" in refused.stderr


def _set_status(apiserver: ApiServer, name: str, status: Manifest) -> None:
    apiserver.set_status("rljob", "default", name, status)
