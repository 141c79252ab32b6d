"""What the API server accepts and refuses, without any webhook of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_contracts.spec.resources import RLJob
from rl_operator.validation.refusals import of_spec
from tests.contract.rl_operator.api.bad_agents import REFUSED_AGENTS, tool_loop
from tests.contract.rl_operator.api.bad_algorithms import REFUSED_ALGORITHMS
from tests.contract.rl_operator.api.bad_jobs import REFUSED_JOBS
from tests.contract.rl_operator.api.bad_options import REFUSED_OPTIONS
from tests.contract.rl_operator.api.bad_pools import ACCEPTED_POOLS, REFUSED_POOLS
from tests.contract.rl_operator.api.bad_scheduling import REFUSED_SCHEDULING
from tests.kube.apiserver import ApiServer, apply
from tests.samples.manifests import a_job, changed

Manifest = dict[str, Any]
MAX_CRD_BYTES = 250_000


@pytest.mark.parametrize("name", ["rljobs.rl-operator.io", "samplerpools.rl-operator.io"])
def test_crds_stay_small_enough_for_client_side_apply(apiserver: ApiServer, name: str) -> None:
    root = Path(__file__).resolve().parents[4]
    file = root / "crds" / f"{name}.yaml"
    stored = json.dumps(yaml.safe_load(file.read_text()), separators=(",", ":"))
    assert len(stored.encode()) < MAX_CRD_BYTES  # kubectl's annotation holds 262,144 bytes
    crd = apiserver.get("crd", name)
    conditions = {
        condition["type"]: condition["status"] for condition in crd["status"]["conditions"]
    }
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_an_agent_with_tools_is_accepted(apiserver: ApiServer) -> None:
    server = {"tokenSecretRef": {"name": "keys"}, "timeoutSeconds": 5}
    agent = tool_loop(server=server, context={"overflow": "DiscardAll"}, maxTurns=3, minTurns=2)
    manifest = a_job("tools")
    manifest["spec"]["agent"] = agent
    assert apply(apiserver, manifest) == ""
    parsed = RLJob.model_validate({"spec": apiserver.get("rljob", "tools")["spec"]}).spec.agent
    assert parsed.mcp_servers[0].token_secret_ref is not None
    assert parsed.mcp_servers[0].token_secret_ref.key == "token"
    assert (parsed.turns, parsed.fewest_turns, parsed.call_format) == (3, 2, "Hermes")


def test_a_valid_job_gets_the_defaults_of_the_models(apiserver: ApiServer) -> None:
    assert apply(apiserver, a_job("defaults")) == ""
    stored = apiserver.get("rljob", "defaults")
    assert stored["status"] == {"observedGeneration": -1}
    parsed = RLJob.model_validate({"spec": stored["spec"]}).spec
    assert parsed == RLJob.model_validate({"spec": a_job()["spec"]}).spec
    written = parsed.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert _without_items(stored["spec"]) == _without_items(written)


def test_items_of_lists_are_stored_as_they_are_written(apiserver: ApiServer) -> None:
    """GitOps tools compare objects with manifests: a default in an item would never be in sync."""
    server = {"name": "calculator", "url": "http://calculator/mcp", "tokenSecretRef": {"name": "k"}}
    manifest = a_job("items", agent={"kind": "ToolLoop", "mcpServers": [server]})
    assert apply(apiserver, manifest) == ""
    stored, written = apiserver.get("rljob", "items")["spec"], manifest["spec"]
    assert stored["agent"]["mcpServers"] == [server]
    assert stored["samplers"] == written["samplers"]
    assert stored["reward"]["scorers"] == written["reward"]["scorers"]
    assert stored["data"]["train"] == written["data"]["train"]


def test_jobs_are_selected_by_phase_and_queue(apiserver: ApiServer) -> None:
    def selected(selector: str) -> list[str]:
        jobs = apiserver.get("rljob", "-l", "test=selected", f"--field-selector={selector}")
        return [item["metadata"]["name"] for item in jobs["items"]]

    for name, queue, phase in (("first", "team", "Running"), ("second", "other", "Queued")):
        manifest = a_job(name, scheduling={"provider": "Kueue", "queueName": queue})
        manifest["metadata"]["labels"] = {"test": "selected"}
        assert apply(apiserver, manifest) == ""
        patch = json.dumps({"status": {"observedGeneration": 1, "phase": phase}})
        apiserver.kubectl(
            "patch", "rljob", name, "--subresource=status", "--type=merge", "-p", patch
        )
    assert selected("status.phase=Running") == ["first"]
    assert selected("spec.scheduling.queueName=other") == ["second"]
    assert selected("status.phase!=Running,spec.scheduling.queueName=team") == []


def test_a_pool_shows_why_it_is_not_ready(apiserver: ApiServer) -> None:
    template = {"autoscaling": {"mode": "Builtin", "minReplicas": 1, "maxReplicas": 2}}
    pool = {**a_job("shown"), "kind": "SamplerPool", "spec": {"job": "job", "template": template}}
    assert apply(apiserver, pool) == ""
    condition = {"type": "Ready", "status": "False", "reason": "JobNotFound"}
    patch = json.dumps({"status": {"observedGeneration": 1, "conditions": [condition]}})
    apiserver.kubectl(
        "patch", "samplerpool", "shown", "--subresource=status", "--type=merge", "-p", patch
    )
    shown = apiserver.kubectl("get", "samplerpool", "shown").stdout
    assert "JobNotFound" in shown
    assert "Builtin" not in shown
    assert "Builtin" in apiserver.kubectl("get", "samplerpool", "shown", "-o", "wide").stdout


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


def test_an_evaluation_names_no_training(apiserver: ApiServer) -> None:
    source = {"name": "held-out", "uri": "s3://abc/test.jsonl"}
    evaluation = {
        "algorithm": {"objective": "Evaluation"},
        "model": {"uri": "s3://abc/model"},
        "data": {"test": [source]},
        "reward": {"scorers": [{"kind": "ExactMatch"}]},
        "training": {"evaluation": {"samplesPerPrompt": 4}},
        "samplers": [{"name": "main"}],
    }
    manifest = a_job("evaluation") | {"spec": evaluation}
    assert apply(apiserver, manifest) == ""
    stored = RLJob.model_validate({"spec": apiserver.get("rljob", "evaluation")["spec"]}).spec
    assert list(of_spec(stored)) == []


ALL_REFUSED = (
    REFUSED_JOBS | REFUSED_ALGORITHMS | REFUSED_AGENTS | REFUSED_OPTIONS | REFUSED_SCHEDULING
)


@pytest.mark.parametrize(("manifest", "named"), ALL_REFUSED.values(), ids=ALL_REFUSED.keys())
def test_a_bad_job_is_refused_by_name(apiserver: ApiServer, manifest: Manifest, named: str) -> None:
    assert named in apply(apiserver, manifest)


@pytest.mark.parametrize(("pool", "named"), REFUSED_POOLS.values(), ids=REFUSED_POOLS.keys())
def test_a_bad_pool_is_refused_by_name(apiserver: ApiServer, pool: Manifest, named: str) -> None:
    assert named in apply(apiserver, pool, "--dry-run=server")


@pytest.mark.parametrize("pool", ACCEPTED_POOLS.values(), ids=ACCEPTED_POOLS.keys())
def test_a_pool_of_the_hubs_models_is_accepted(apiserver: ApiServer, pool: Manifest) -> None:
    assert apply(apiserver, pool, "--dry-run=server") == ""


def test_an_active_deadline_is_raised_or_removed_alone(apiserver: ApiServer) -> None:
    def at(seconds: int | None) -> str:
        lifecycle = {} if seconds is None else {"activeDeadlineSeconds": seconds}
        return apply(apiserver, a_job("bounded", lifecycle=lifecycle))

    assert [at(None), at(600), at(900)] == ["", "", ""]
    refused = at(899)
    assert "spec.lifecycle.activeDeadlineSeconds" in refused
    assert "it can only be raised" in refused
    assert at(None) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"managedBy": "kueue.x-k8s.io/multikueue", "job": "job"}, "managedBy is for a pool that"),
        ({"networkPolicy": "None", "job": "job"}, "networkPolicy is for a pool with maxRuns"),
        ({"networkPolicy": "None", "model": {"uri": "s3://abc/m"}, "maxRuns": 2}, ""),
        ({"managedBy": "kueue.x-k8s.io/multikueue", "model": {"uri": "s3://abc/m"}}, ""),
    ],
)
def test_pool_options_must_match_the_kind_of_pool(
    apiserver: ApiServer, changes: dict[str, Any], words: str
) -> None:
    job = a_job("options")
    pool = {**job, "kind": "SamplerPool", "spec": changes}
    complaint = apply(apiserver, pool, "--dry-run=server")
    assert words in complaint if words else complaint == ""


@pytest.mark.parametrize(
    "path",
    ["spec.trainng", "spec.training.step", "spec.reward.scorer", "spec.agent.sampling.topP"],
)
def test_an_unknown_field_is_refused_under_strict_validation(
    apiserver: ApiServer, path: str
) -> None:
    complaint = apply(apiserver, changed(path, 1), "--validate=strict")
    assert f'unknown field "{path}"' in complaint


def _without_items(value: Any) -> Any:
    """Without lists of sections, which the API server fills with nothing, and empty maps."""
    if isinstance(value, dict):
        kept = {key: _without_items(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in ({}, [], None)}
    if isinstance(value, list):
        return [item for item in value if not isinstance(item, dict)]
    return value
