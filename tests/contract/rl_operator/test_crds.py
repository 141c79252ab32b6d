"""What the API server accepts and refuses, without any webhook of ours."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.resources import RLJob
from tests.apiserver import ApiServer
from tests.manifests import a_job

Manifest = dict[str, Any]


def changed(path: str, value: Any) -> Manifest:
    """The valid job with one field set, or taken away by an Ellipsis."""
    manifest = copy.deepcopy(a_job())
    *folders, last = path.split(".")
    place = manifest
    for folder in folders:
        place = place[int(folder)] if isinstance(place, list) else place.setdefault(folder, {})
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return manifest


def apply(apiserver: ApiServer, manifest: Manifest, *options: str) -> str:
    """Apply as a user does; return what kubectl complained of, empty when nothing."""
    done = apiserver.kubectl("apply", "-f", "-", *options, stdin=json.dumps(manifest), check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("name", ["rljobs.rl-operator.io", "samplerpools.rl-operator.io"])
def test_crds_stay_small_enough_for_client_side_apply(apiserver: ApiServer, name: str) -> None:
    root = Path(__file__).resolve().parents[3]
    assert (root / "crds" / f"{name}.yaml").stat().st_size < 60_000
    found = apiserver.get("crd", name)
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_a_valid_job_gets_the_defaults_of_the_models(apiserver: ApiServer) -> None:
    assert apply(apiserver, a_job("defaults")) == ""
    stored = apiserver.get("rljob", "defaults")
    assert stored["status"] == {"observedGeneration": -1}
    parsed = RLJob.model_validate({"spec": stored["spec"]}).spec
    assert parsed == RLJob.model_validate({"spec": a_job()["spec"]}).spec
    written = parsed.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert _without_empty(stored["spec"]) == _without_empty(written)


def test_the_shortest_job_is_accepted(apiserver: ApiServer) -> None:
    source = {"name": "train", "uri": "s3://abc/train.jsonl"}
    shortest = {
        "model": {"uri": "s3://abc/model"},
        "data": {"train": [source]},
        "reward": {"scorers": [{"kind": "ExactMatch"}]},
        "training": {"steps": 1},
        "samplers": [{"name": "main"}],
    }
    manifest = a_job("shortest") | {"spec": shortest}
    assert apply(apiserver, manifest) == ""
    assert apiserver.get("rljob", "shortest")["spec"]["training"]["evaluation"]["temperatures"]


REFUSED = {
    "group of one under GRPO": (changed("spec.algorithm.groupSize", 1), "groupSize must be at"),
    "negative steps": (changed("spec.training.steps", -1), "spec.training.steps"),
    "no steps": (changed("spec.training.steps", ...), "spec.training.steps"),
    "steps are no text": (changed("spec.training.steps", "many"), "spec.training.steps"),
    "warm-up after the end": (
        changed("spec.training.optimizer.warmupSteps", 10_000), "warmupSteps must not exceed"
    ),
    "evaluation after the end": (
        changed("spec.training.evaluation.everySteps", 10_000), "everySteps must not exceed"
    ),
    "policies too rare": (
        changed("spec.weightSync.everySteps", 100), "weightSync.everySteps must be at most"
    ),
    "evaluation without data": (changed("spec.data.validation", []), "needs data.validation"),
    "no room for the prompt": (
        changed("spec.agent.sampling.maxTokensPerTurn", 8192), "must be smaller than"
    ),
    "zero learning rate": (
        changed("spec.training.optimizer.learningRate", 0), "spec.training.optimizer.learningRate"
    ),
    "unknown loss": (changed("spec.algorithm.loss.kind", "Magic"), "spec.algorithm.loss.kind"),
    "no scorer": (changed("spec.reward.scorers", []), "spec.reward.scorers"),
    "no sampler": (changed("spec.samplers", []), "spec.samplers"),
    "two groups of a name": (
        changed("spec.samplers", [{"name": "main"}, {"name": "main"}]), "spec.samplers[1]"
    ),
    "no minimum of samplers": (
        changed("spec.samplers.0.template.autoscaling.minReplicas", 0), "minReplicas"
    ),
    "a local model": (changed("spec.model.uri", "/models/tiny"), "spec.model.uri"),
    "not JSONL": (changed("spec.data.train.0.uri", "s3://abc/x.csv"), "spec.data.train[0].uri"),
    "name too long": (changed("metadata.name", "n" * 41), "metadata.name must be"),
    "name with a dot": (changed("metadata.name", "a.b"), "metadata.name must be"),
    "pool name too long": (
        changed("spec.samplers.0.name", "n" * 40) | {"metadata": {"name": "n" * 30}},
        "at most 62 characters",
    ),
    "name starts with a digit": (changed("metadata.name", "1a"), "metadata.name must be"),
}  # fmt: skip


@pytest.mark.parametrize(("manifest", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_job_is_refused_by_name(apiserver: ApiServer, manifest: Manifest, named: str) -> None:
    assert named in apply(apiserver, manifest)


@pytest.mark.parametrize("path", ["spec.trainng", "spec.training.step", "spec.reward.scorer"])
def test_an_unknown_field_is_refused_under_strict_validation(
    apiserver: ApiServer, path: str
) -> None:
    complaint = apply(apiserver, changed(path, 1), "--validate=strict")
    assert f'unknown field "{path}"' in complaint


FIXED: dict[str, tuple[str, Any]] = {
    "model": ("spec.model.uri", "s3://rl-data/models/other"),
    "data": ("spec.data.train.0.name", "other"),
    "agent": ("spec.agent.systemPrompt", "Be brief."),
    "reward": ("spec.reward.answerSchema", "Raw"),
    "algorithm": ("spec.algorithm.groupSize", 4),
    "training": ("spec.training.steps", 70),
    "trainer": ("spec.trainer.image", "other"),
    "storage": ("spec.storage.secretName", "other"),
    "weightSync": ("spec.weightSync.everySteps", 2),
}


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
    assert f"spec.{section} cannot change once the trainer has been started" in edited(started=True)


def test_pools_and_deadlines_may_change_after_the_start(apiserver: ApiServer) -> None:
    assert apply(apiserver, a_job("mutable")) == ""
    _set_status(apiserver, "mutable", {"attempt": 1, "observedGeneration": 1})
    changes: list[Callable[[Manifest], None]] = [
        lambda spec: spec["samplers"][0]["template"].update(maxConcurrentGroups=2),
        lambda spec: spec.update(lifecycle={"backoffLimit": 9}),
    ]
    manifest = a_job("mutable")
    for change in changes:
        change(manifest["spec"])
        assert apply(apiserver, manifest) == ""


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
    patch = json.dumps({"status": status})
    apiserver.kubectl(
        "patch", "rljob", name, "--subresource=status", "--type=merge", "-p", patch
    )  # fmt: skip


def _without_empty(value: Any) -> Any:
    """Empty maps and lists are the same as none at all."""
    if isinstance(value, dict):
        kept = {key: _without_empty(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one not in ({}, [], None)}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value
