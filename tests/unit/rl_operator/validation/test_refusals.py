"""Options that cannot be honoured are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.sampler import Sampler
from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.validation import unsupported
from rl_operator.validation.refusals import of_samplers, of_spec
from tests.documents import a_sampler
from tests.unit.rl_operator.builders import a_spec


def a_group(**template: Any) -> dict[str, Any]:
    return {"samplers": [{"name": "main"}, {"name": "other", "template": template}]}


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "trainer quantity": (
        {"trainer": {"resources": {"limits": {"memory": "much"}}}},
        "spec.trainer.resources.limits.memory",
        "QuantityMalformed",
    ),
    "engine quantity": (
        a_group(resources={"requests": {"cpu": "1 core"}}),
        "spec.samplers[1].template.resources.requests.cpu",
        "QuantityMalformed",
    ),
    "our variable": (
        {"trainer": {"env": [{"name": "A"}, {"name": "RL_RUN"}]}},
        "spec.trainer.env[1].name",
        "VariableReserved",
    ),
    "the launcher's variable": (
        {"trainer": {"env": [{"name": "PET_NNODES"}]}},
        "spec.trainer.env[0].name",
        "VariableReserved",
    ),
    "an engine of several pods": (
        a_group(engine={"nodesPerReplica": 2}),
        "spec.samplers[1].template.engine.nodesPerReplica",
        "SeveralNodesUnsupported",
    ),
    "a rollout that stops half-way": (
        a_group(rollout={"partition": "50%"}),
        "spec.samplers[1].template.rollout.partition",
        "PartitionUnsupported",
    ),
    "a revision of a folder": (
        {"model": {"uri": "s3://abc/model", "revision": "main"}},
        "spec.model.revision",
        "RevisionUnsupported",
    ),
    "two revisions": (
        {"model": {"uri": "hf://org/name@v1", "revision": "v2"}},
        "spec.model.revision",
        "RevisionTwice",
    ),
    "a model on a volume": (
        {"model": {"uri": "file:///models/tiny"}},
        "spec.model.uri",
        "FileModelUnsupported",
    ),
    "a tokenizer on a volume": (
        {"model": {"uri": "hf://org/name", "tokenizerUri": "file:///words"}},
        "spec.model.tokenizerUri",
        "FileModelUnsupported",
    ),
    "weights from GPU to GPU": (
        {"weightSync": {"transport": {"kind": "NCCL"}}},
        "spec.weightSync.transport.kind",
        "TransportUnsupported",
    ),
    "updates that nobody orders": (
        {"weightSync": {"maxUnavailable": "25%"}},
        "spec.weightSync.maxUnavailable",
        "TransportUnsupported",
    ),
    "a relay that anyone reaches": (
        {"networkPolicy": "None", "weightSync": {"transport": {"relay": True}}},
        "spec.weightSync.transport.relay",
        "RelayUnguarded",
    ),
    "settings of torchrun": (
        {"trainer": {"elastic": {"minReplicas": 1, "maxReplicas": 1, "rdzvConf": {"timeout": 9}}}},
        "spec.trainer.elastic.rdzvConf",
        "RendezvousUnsupported",
    ),
    "a meeting where metrics are": (
        {"trainer": {"elastic": {"minReplicas": 1, "maxReplicas": 1, "rdzvPort": 8080}}},
        "spec.trainer.elastic.rdzvPort",
        "RendezvousUnsupported",
    ),
    "requests kept for nobody": (
        a_group(drain={"mode": "Pause"}),
        "spec.samplers[1].template.drain.mode",
        "DrainUnsupported",
    ),
    "a quota of no queue": (
        {"scheduling": {"samplerQuota": "None"}},
        "spec.scheduling.samplerQuota",
        "QueueUnused",
    ),
    "a gang": (
        {"scheduling": {"gang": {"minAvailable": 3}}},
        "spec.scheduling.gang",
        "SchedulerUnsupported",
    ),
    "the agent's variable": (
        a_group(env=[{"name": "A"}, {"name": "RL_POOL"}]),
        "spec.samplers[1].template.env[1].name",
        "VariableReserved",
    ),
    "the engine's home": (
        a_group(engine={"env": [{"name": "HOME"}]}),
        "spec.samplers[1].template.engine.env[0].name",
        "VariableReserved",
    ),
    "our argument": (
        a_group(engine={"args": ["--device", "cpu", "--dtype=half"]}),
        "spec.samplers[1].template.engine.args[2]",
        "ArgumentReserved",
    ),
    "an adapter of the engine's own": (
        a_group(engine={"args": ["--lora-paths", "a=/b"]}),
        "spec.samplers[1].template.engine.args[0]",
        "ArgumentReserved",
    ),
    "a pause where nothing pauses": (
        {"weightSync": {"pause": "Abort"}, "training": {"steps": 1, "lora": {}}},
        "spec.weightSync.pause",
        "LoRAUnsupported",
    ),
    "adapters of a part of what the engine stacks": (
        {"training": {"steps": 1, "lora": {"targets": ["k_proj", "v_proj"]}}},
        "spec.training.lora.targets",
        "LoRAUnsupported",
    ),
    "adapters of the other half": (
        {"training": {"steps": 1, "lora": {"targets": ["up_proj", "o_proj"]}}},
        "spec.training.lora.targets",
        "LoRAUnsupported",
    ),
    "a critic of weights that are quantized": (
        {
            "algorithm": {"estimator": {"kind": "GAE"}, "critic": {}},
            "training": {"steps": 1, "lora": {"quantization": "NF4"}},
        },
        "spec.training.lora.quantization",
        "LoRAUnsupported",
    ),
    "a reference that moves away from the model": (
        {
            "algorithm": {"kl": {"refreshEverySteps": 5}},
            "training": {"steps": 1, "lora": {}},
        },
        "spec.algorithm.kl.refreshEverySteps",
        "LoRAUnsupported",
    ),
    "a clip of what has a gate": (
        {"algorithm": {"loss": {"kind": "SAPO", "clipHigh": 0.3}}},
        "spec.algorithm.loss.clipHigh",
        "OptionUnused",
    ),
    "a temperature of another loss": (
        {"algorithm": {"loss": {"kind": "GMPO", "tauNegative": 1.1}}},
        "spec.algorithm.loss.tauNegative",
        "OptionUnused",
    ),
    "a difference of probabilities that none can have": (
        {"algorithm": {"loss": {"kind": "DPPOTV", "clipHigh": 1.0}}},
        "spec.algorithm.loss.clipHigh",
        "OptionUnused",
    ),
    "a cap on the clip of a gate": (
        {
            "algorithm": {
                "loss": {"kind": "SAPO"},
                "offPolicy": {"correction": {"kind": "ImportanceCap"}},
            }
        },
        "spec.algorithm.offPolicy.correction.kind",
        "OptionUnused",
    ),
    "a push that nobody may make": (
        {"training": {"steps": 1, "checkpoint": {"hubRepo": "org/sums"}}},
        "spec.training.checkpoint.hubRepo",
        "HubTokenMissing",
    ),
    "fp8": (
        a_group(engine={"args": ["--quantization", "fp8"]}),
        "spec.samplers[1].template.engine.args[0]",
        "EngineQuantized",
    ),
    "fp8, abbreviated": (
        a_group(engine={"args": ["--device", "cuda", "--quant=fp8"]}),
        "spec.samplers[1].template.engine.args[2]",
        "EngineQuantized",
    ),
    "a scheduler that places PyTorchJobs alone": (
        {"scheduling": {"provider": "Volcano"}},
        "spec.scheduling.provider",
        "SchedulerUnsupported",
    ),
    "another one of that kind": (
        {"scheduling": {"provider": "Coscheduling", "queueName": "team"}},
        "spec.scheduling.provider",
        "SchedulerUnsupported",
    ),
    "Kueue without a queue": (
        {"scheduling": {"provider": "Kueue"}},
        "spec.scheduling.queueName",
        "QueueMissing",
    ),
    "a queue that nobody asks": (
        {"scheduling": {"queueName": "team"}},
        "spec.scheduling.queueName",
        "QueueUnused",
    ),
    "a queue of a name that none can have": (
        {"scheduling": {"provider": "Kueue", "queueName": "Team A"}},
        "spec.scheduling.queueName",
        "NameMalformed",
    ),
    "a priority that nobody reads": (
        {"scheduling": {"workloadPriorityClassName": "urgent"}},
        "spec.scheduling.workloadPriorityClassName",
        "QueueUnused",
    ),
    "pods on top of those that are admitted": (
        {
            "scheduling": {"provider": "Kueue", "queueName": "team"},
            **a_group(rollout={"maxSurge": "10%"}),
        },
        "spec.samplers[1].template.rollout.maxSurge",
        "SurgeBeyondQueue",
    ),
    "a shared pool, which no queue admits": (
        {
            "scheduling": {"provider": "Kueue", "queueName": "team"},
            "samplers": [{"name": "main", "poolRef": {"name": "shared"}}],
        },
        "spec.samplers[0].poolRef.name",
        "PoolNotQueued",
    ),
    "more groups than a Workload has sets": (
        {
            "scheduling": {"provider": "Kueue", "queueName": "team"},
            "samplers": [{"name": f"g{number}"} for number in range(8)],
        },
        "spec.samplers",
        "TooManyPodSets",
    ),
    "another way to quantize": (
        a_group(engine={"args": ["--torchao-config", "int8wo"]}),
        "spec.samplers[1].template.engine.args[0]",
        "EngineQuantized",
    ),
    "code of another kind": (
        {"agent": {"entryPoint": "a:b"}},
        "spec.agent.entryPoint",
        "AgentMalformed",
    ),
    "options of nobody": ({"agent": {"options": {"a": 1}}}, "spec.agent.options", "AgentMalformed"),
    "a reader of no results": (
        {"agent": {"browse": {"endpoints": [{"url": "http://a/v1", "model": "m"}]}}},
        "spec.agent.browse",
        "AgentMalformed",
    ),
    "a user of another kind": (
        {"agent": {"user": {"endpoints": [{"url": "http://a/v1", "model": "m"}]}}},
        "spec.agent.user",
        "AgentMalformed",
    ),
    "results that ReAct lacks": (
        {"agent": {"kind": "ReAct", "context": {"overflow": "DiscardTools"}}},
        "spec.agent.context",
        "AgentMalformed",
    ),
    "a parser of ReAct": (
        {"agent": {"kind": "ReAct", "toolCallFormat": "Hermes"}},
        "spec.agent.toolCallFormat",
        "AgentMalformed",
    ),
    "a scenario of nobody": (
        {
            "data": {
                "train": [{"name": "a", "uri": "s3://abc/a.jsonl", "columns": {"scenario": "aim"}}]
            }
        },
        "spec.data.train[0].columns.scenario",
        "AgentMalformed",
    ),
    "a user without words": (
        {
            "agent": {"kind": "Conversation"},
            "data": {"train": [{"name": "a", "uri": "s3://abc/a.jsonl"}]},
        },
        "spec.data.train[0].columns.scenario",
        "AgentMalformed",
    ),
    "a sandbox of nobody": ({"sandbox": {"seconds": 3}}, "spec.sandbox", "AgentMalformed"),
    "tools of programs": (
        {"agent": {"kind": "Code", "mcpServers": [{"name": "a", "url": "http://a/mcp"}]}},
        "spec.agent.mcpServers",
        "AgentMalformed",
    ),
    "results that Code lacks": (
        {"agent": {"kind": "Code", "context": {"overflow": "DiscardTools"}}},
        "spec.agent.context",
        "AgentMalformed",
    ),
    "no code": ({"agent": {"kind": "Custom"}}, "spec.agent.entryPoint", "AgentMalformed"),
}


@pytest.mark.parametrize(("sections", "field", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_by_field(sections: dict[str, Any], field: str, reason: str) -> None:
    (refusal,) = of_spec(a_spec(**sections))
    assert (refusal.field, refusal.reason) == (field, reason)
    assert refusal.value
    assert refusal.remedy


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"weights": {"version": 7}}, "spec.weights"),
        ({"service": {"type": "ClusterIP", "headless": True}}, "spec.service"),
        ({"model": {"uri": "s3://abc/model", "revision": "v1"}}, "spec.model.revision"),
        ({"model": {"uri": "file:///model"}}, "spec.model.uri"),
        ({"model": {"uri": "hf://org/name", "revision": "v1"}, "maxRuns": 2}, "spec.model.uri"),
        (
            {
                "model": {"uri": f"hf://org/name@{'a' * 40}", "tokenizerUri": "hf://org/words"},
                "maxRuns": 2,
            },
            "spec.model.tokenizerUri",
        ),
    ],
)
def test_a_pools_own_options_are_refused_by_field(changes: dict[str, Any], field: str) -> None:
    shared = {"model": {"uri": "s3://abc/model"}}
    assert list(unsupported.of_pool(SamplerPoolSpec.model_validate(shared))) == []
    (refusal,) = unsupported.of_pool(SamplerPoolSpec.model_validate(shared | changes))
    assert refusal.field == field
    assert refusal.value
    assert refusal.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"uri": "hf://org/name", "revision": "main"}},
        {"model": {"uri": "hf://org/name", "revision": "a" * 40}, "maxRuns": 2},
        {"model": {"uri": f"hf://org/name@{'a' * 40}"}, "maxRuns": 2},
    ],
)
def test_a_pool_of_the_hubs_models(changes: dict[str, Any]) -> None:
    assert list(unsupported.of_pool(SamplerPoolSpec.model_validate(changes))) == []


def test_ordinary_options_pass() -> None:
    ordinary = a_group(
        engine={
            "args": ["--device", "cpu", "--quantization-param-path=kv.json"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        },
        resources={"limits": {"nvidia.com/gpu": 1, "memory": "4Gi", "cpu": "500m"}},
    )
    assert list(of_spec(a_spec(**ordinary))) == []


def test_a_scorer_that_a_sampler_does_not_know() -> None:
    spec = a_spec(reward={"scorers": [{"kind": "ExactMatch"}, {"kind": "Magic"}]})
    sampler = a_sampler(scorers=["Format", "ExactMatch"])
    (refusal,) = of_samplers(spec, [sampler])
    assert (refusal.field, refusal.value) == ("spec.reward.scorers[1].kind", "Magic")
    assert refusal.remedy == "Use one of: ExactMatch, Format."
    assert list(of_samplers(spec, [])) == []


def test_what_a_sampler_itself_refuses_comes_first() -> None:
    refusal = Refusal(
        field="spec.reward.scorers[0].entryPoint",
        value="a:b",
        reason="EntryPointUnusable",
        message="No.",
        remedy="Mend it.",
    )
    stored = a_sampler(refusals=[refusal], scorers=["ExactMatch"]).to_mongo()
    sampler = Sampler.from_mongo(stored)
    spec = a_spec(reward={"scorers": [{"kind": "Magic"}]})
    assert next(of_samplers(spec, [sampler])) == refusal
