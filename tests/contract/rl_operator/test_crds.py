"""What the API server accepts and refuses, without any webhook of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_contracts.spec.resources import RLJob
from rl_operator.refusals import of_spec
from tests.apiserver import ApiServer, apply
from tests.contract.rl_operator.bad_agents import REFUSED_AGENTS, tool_loop
from tests.manifests import a_job, changed

Manifest = dict[str, Any]


@pytest.mark.parametrize("name", ["rljobs.rl-operator.io", "samplerpools.rl-operator.io"])
def test_crds_stay_small_enough_for_client_side_apply(apiserver: ApiServer, name: str) -> None:
    root = Path(__file__).resolve().parents[3]
    file = root / "crds" / f"{name}.yaml"
    assert file.stat().st_size < 60_000
    written = file.read_text()
    stored = json.dumps(yaml.safe_load(written), separators=(",", ":"))
    assert len(stored) < 60_000  # what kubectl keeps in its annotation
    found = apiserver.get("crd", name)
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


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
    assert _without_empty(stored["spec"]) == _without_empty(written)


def test_jobs_are_selected_by_phase_and_queue(apiserver: ApiServer) -> None:
    def selected(selector: str) -> list[str]:
        found = apiserver.get("rljob", "-l", "test=selected", f"--field-selector={selector}")
        return [one["metadata"]["name"] for one in found["items"]]

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


REFUSED = {
    "group of one under GRPO": (changed("spec.algorithm.groupSize", 1), "groupSize must be at"),
    "retraining what is too old": (
        changed("spec.algorithm.offPolicy", {"maxTrainings": 2, "retrainInterval": 2}),
        "maxTrainings needs maxStaleness of at least retrainInterval",
    ),
    "an interval of nothing": (
        changed("spec.algorithm.offPolicy", {"maxStaleness": 4, "retrainInterval": 2}),
        "retrainInterval needs maxTrainings",
    ),
    "a minimum without a deadline": (
        changed("spec.rollouts", {"completion": {"kind": "Minimum", "minimum": 2}}),
        "minimum and deadlineSeconds go with kind Minimum",
    ),
    "a minimum above the group": (
        changed("spec.rollouts", {"completion": {
            "kind": "Minimum", "minimum": 999, "deadlineSeconds": 60}}),
        "must not exceed algorithm.groupSize",
    ),
    "a minimum of one under GRPO": (
        changed("spec.rollouts", {"completion": {
            "kind": "Minimum", "minimum": 1, "deadlineSeconds": 60}}),
        "rollouts.completion.minimum must be at least 2",
    ),
    "a minimum below the best of k": (
        changed("spec", {
            **a_job()["spec"],
            "algorithm": {"groupSize": 8, "estimator": {"kind": "PassAtK", "k": 4}},
            "rollouts": {
                "completion": {"kind": "Minimum", "minimum": 3, "deadlineSeconds": 60}
            },
        }),
        "of PassAtK estimator.k",
    ),
    "negative steps": (changed("spec.training.steps", -1), "spec.training.steps"),
    "no steps": (changed("spec.training.steps", ...), "either steps or epochs"),
    "nothing to train on": (changed("spec.data", {}), "and data.train"),
    "steps and epochs": (changed("spec.training.epochs", 2), "either steps or epochs"),
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
    "dual clip for GSPO": (
        changed("spec.algorithm.loss", {"kind": "GSPO", "dualClip": 3.0}), "loss.dualClip is for"
    ),
    "importance cap for PPO": (
        changed("spec.algorithm.loss.importanceCap", 2.0), "loss.importanceCap is for"
    ),
    "constant length without one": (
        changed("spec.algorithm.loss.aggregation", "ConstantLength"), "loss.length goes with"
    ),
    "length of a mean": (changed("spec.algorithm.loss.length", 512), "loss.length goes with"),
    "cap without correction": (
        changed("spec.algorithm.offPolicy.correction", {"cap": 2.0}), "correction.cap is not"
    ),
    "lower bound of OPSM": (
        changed("spec.algorithm.offPolicy.correction",
                {"kind": "OPSM", "threshold": 1.0, "low": 0.5}), "correction.low is for"
    ),
    "empty range": (
        changed("spec.algorithm.offPolicy.correction", {"kind": "IcePop", "low": 1.0, "cap": 1.0}),
        "smaller than cap",
    ),
    "level of TIS": (
        changed("spec.algorithm.offPolicy.correction", {"kind": "TIS", "level": "Geometric"}),
        "correction.level is for",
    ),
    "OPSM without threshold": (
        changed("spec.algorithm.offPolicy.correction.kind", "OPSM"), "correction.threshold goes"
    ),
    "decay of TIS": (
        changed("spec.algorithm.offPolicy.correction", {"kind": "TIS", "decay": 1.0}),
        "are for kind ImportanceCap",
    ),
    "decay under strict bounds": (
        changed("spec.algorithm.offPolicy.correction",
                {"kind": "ImportanceCap", "decay": 1.0, "strictInBound": True}),
        "changes nothing",
    ),
    "weighed twice": (
        changed("spec.algorithm", {"loss": {"kind": "DecoupledPPO"},
                                   "offPolicy": {"correction": {"kind": "TIS"}}}),
        "weighs by p / μ itself",
    ),
    "updates that leave a rest": (
        changed("spec.training.promptsPerUpdate", 3), "must divide promptsPerStep"
    ),
    "minimum of a constant rate": (
        changed("spec.training.optimizer.minimumRatio", 0.1), "minimumRatio is for"
    ),
    "k without pass@k": (changed("spec.algorithm.estimator", {"k": 2}), "estimator.k goes with"),
    "pass@k without k": (
        changed("spec.algorithm.estimator.kind", "PassAtK"), "estimator.k goes with"
    ),
    "pass@k of more than there are": (
        changed("spec.algorithm.estimator", {"kind": "PassAtK", "k": 1000}), "must not exceed group"
    ),
    "discount for GRPO": (changed("spec.algorithm.estimator.gamma", 0.9), "estimator.gamma is for"),
    "turns under GRPO": (changed("spec.algorithm.estimator.perTurn", True), "as is perTurn"),
    "signs of MaxEnt": (
        changed("spec.algorithm", {"estimator": {"kind": "MaxEnt"}, "loss": {"kind": "MaxEnt"},
                                   "shaping": {"forceSign": True}}),
        "weighs whole groups",
    ),
    "spread without resampling": (
        changed("spec.algorithm.shaping.minRewardSpread", 0.1), "needs dynamicSampling"
    ),
    "two thresholds": (
        changed("spec.algorithm.shaping", {"minimalAdvantage": 0.1, "dropZeroAdvantage": True}),
        "drops zero advantages too",
    ),
    "filter of a whole step": (
        changed("spec.algorithm", {"estimator": {"kind": "REINFORCEPlusPlus"},
                                   "shaping": {"dropZeroAdvantage": True}}),
        "need an estimator of single groups",
    ),
    "buffer longer than the response": (
        changed("spec.algorithm.shaping.overlong", {"maxTokens": 10, "bufferTokens": 11}),
        "must not exceed maxTokens",
    ),
    "adaptive without target": (
        changed("spec.algorithm.kl", {"controller": {"kind": "Adaptive", "horizon": 100}}),
        "kl.controller.target and horizon go with",
    ),
    "fixed with a target": (
        changed("spec.algorithm.kl", {"controller": {"target": 0.1, "horizon": 100}}),
        "kl.controller.target and horizon go with",
    ),
    "gradient of a reward": (
        changed("spec.algorithm.kl", {"placement": "Reward", "gradient": "StraightThrough"}),
        "kl.gradient is for placement Loss",
    ),
    "K2 straight through": (
        changed("spec.algorithm.kl", {"estimator": "K2", "gradient": "StraightThrough"}),
        "what estimator K2 has anyway",
    ),
    "unbiased Abs": (
        changed("spec.algorithm.kl", {"estimator": "Abs", "gradient": "Unbiased"}),
        "is for estimators K1 and K3",
    ),
    "MaxEnt's loss alone": (
        changed("spec.algorithm.loss.kind", "MaxEnt"), "loss.kind MaxEnt go together"
    ),
    "MaxEnt's options for GRPO": (
        changed("spec.algorithm.estimator.maxent", {"tau": 1.0}), "estimator.maxent is for"
    ),
    "MaxEnt with KL in the reward": (
        changed("spec.algorithm", {"estimator": {"kind": "MaxEnt"}, "loss": {"kind": "MaxEnt"},
                                   "kl": {"placement": "Reward"}}),
        "kl.placement must be Loss",
    ),
    "MaxEnt of half a group": (
        changed("spec.algorithm", {"estimator": {"kind": "MaxEnt"}, "loss": {"kind": "MaxEnt"},
                                   "shaping": {"balanceSample": True}}),
        "weighs whole groups",
    ),
    "clip of MaxEnt without its term": (
        changed("spec.algorithm", {"estimator": {"kind": "MaxEnt"},
                                   "loss": {"kind": "MaxEnt", "clipLow": 0.1}}),
        "without clipCoefficient",
    ),
    "tau's bounds crossed": (
        changed("spec.algorithm", {
            "loss": {"kind": "MaxEnt"},
            "estimator": {"kind": "MaxEnt", "maxent": {
                "tuneTau": {"targetEntropy": 1.0, "minimum": 2.0, "maximum": 1.0}}},
        }),
        "must not exceed maximum",
    ),
    "filter before the KL is known": (
        changed("spec.algorithm", {"kl": {"placement": "Reward"},
                                   "shaping": {"dropZeroAdvantage": True}}),
        "under kl.placement Reward",
    ),
    "GAE without critic": (
        changed("spec.algorithm.estimator.kind", "GAE"), "critic go together"
    ),
    "critic without GAE": (
        changed("spec.algorithm.critic", {"warmupSteps": 1}), "critic go together"
    ),
    "lambda for GRPO": (changed("spec.algorithm.estimator.lam", 0.9), "estimator.lam is for"),
    "a demonstration with samplers": (
        changed("spec.algorithm.objective", "SFT"), "go with algorithm.objective RL alone"
    ),
    "no scorer": (changed("spec.reward.scorers", []), "spec.reward.scorers"),
    "no sampler": (changed("spec.samplers", []), "spec.samplers"),
    "two groups of a name": (
        changed("spec.samplers", [{"name": "main"}, {"name": "main"}]), "spec.samplers[1]"
    ),
    "no minimum of samplers": (
        changed("spec.samplers.0.template.autoscaling.minReplicas", 0), "minReplicas"
    ),
    "a local model": (changed("spec.model.uri", "/models/tiny"), "spec.model.uri"),
    "two ways to ask": (
        changed("spec.data.train.0.columns", {"query": "q", "messages": "m"}), "exclude each other"
    ),
    "split of a file": (changed("spec.data.train.0.split", "train"), "split is for hf:// sources"),
    "two sources of a name": (
        changed("spec.data.validation", [{"name": "a", "uri": "hf://o/n"}] * 2),
        "spec.data.validation[1]",
    ),
    "a weight of nothing": (changed("spec.data.train.0.weight", 0), "spec.data.train[0].weight"),
    "weight of validation data": (
        changed("spec.data.validation.0.weight", 2), 'unknown field "spec.data.validation[0].weight'
    ),
    "not JSONL": (changed("spec.data.train.0.uri", "s3://abc/x.csv"), "spec.data.train[0].uri"),
    "name too long": (changed("metadata.name", "n" * 41), "metadata.name must be"),
    "name with a dot": (changed("metadata.name", "a.b"), "metadata.name must be"),
    "pool name too long": (
        changed("spec.samplers.0.name", "n" * 40) | {"metadata": {"name": "n" * 30}},
        "at most 62 characters",
    ),
    "a failure rule without a case": (
        changed("spec.lifecycle.failurePolicy", {"rules": [{"action": "Ignore"}]}),
        "either onExitCodes or onPodCondition",
    ),
    "a failure rule of two cases": (
        changed(
            "spec.lifecycle.failurePolicy",
            {
                "rules": [
                    {
                        "action": "Ignore", "onExitCodes": {"values": [1]},
                        "onPodCondition": {"type": "X"},
                    }
                ]
            },
        ),
        "either onExitCodes or onPodCondition",
    ),
    "builtin without a maximum": (
        changed("spec.samplers.0.template.autoscaling", {"mode": "Builtin"}),
        "mode Builtin needs",
    ),
    "minimum above the maximum": (
        changed(
            "spec.samplers.0.template.autoscaling",
            {"mode": "Builtin", "minReplicas": 5, "maxReplicas": 4},
        ),
        "must not exceed autoscaling.maxReplicas",
    ),
    "a maximum that nobody keeps": (
        changed("spec.samplers.0.template.autoscaling", {"maxReplicas": 4}), "of mode Builtin alone"
    ),
    "a rollout that cannot move": (
        changed("spec.samplers.0.template.rollout", {"maxUnavailable": "0%", "maxSurge": 0}),
        "must not both be 0",
    ),
    "no share": (
        changed("spec.samplers.0.template.rollout", {"maxUnavailable": "many"}), "maxUnavailable"
    ),
    "a backoff above its bound": (
        changed("spec.lifecycle.restartBackoffSeconds", 900),
        "lifecycle.restartBackoffMaxSeconds must be at least restartBackoffSeconds",
    ),
    "a meeting of etcd": (
        changed("spec.trainer.elastic", {
            "minReplicas": 1, "maxReplicas": 1, "rdzvBackend": "etcd"}),
        'supported values: "c10d"',
    ),
    "a policy of nobody": (changed("spec.networkPolicy", "DenyAll"), '"RunOnly", "None"'),
    "a tokenizer on a disk": (
        changed("spec.model.tokenizerUri", "file:///tokenizer"), "spec.model.tokenizerUri"
    ),
    "name starts with a digit": (changed("metadata.name", "1a"), "metadata.name must be"),
}  # fmt: skip


ALL_REFUSED = REFUSED | REFUSED_AGENTS


@pytest.mark.parametrize(("manifest", "named"), ALL_REFUSED.values(), ids=ALL_REFUSED.keys())
def test_a_bad_job_is_refused_by_name(apiserver: ApiServer, manifest: Manifest, named: str) -> None:
    assert named in apply(apiserver, manifest)


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
def test_a_pools_options_are_of_its_kind(
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


def _without_empty(value: Any) -> Any:
    """Empty maps and lists are the same as none at all."""
    if isinstance(value, dict):
        kept = {key: _without_empty(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one not in ({}, [], None)}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value
