"""Options that cannot be honoured: the API server refuses them, and names the field."""

from __future__ import annotations

from typing import Any

from tests.samples.manifests import a_job

Manifest = dict[str, Any]


def a_group(**template: Any) -> Manifest:
    return {"samplers": [{"name": "main"}, {"name": "other", "template": template}]}


TRAIN = [{"name": "train", "uri": "s3://abc/train.jsonl"}]
STORED: Manifest = {
    "algorithm": {"objective": "Offline"},
    "data": {"rollouts": {"runId": "earlier"}},
    "samplers": [],
    "reward": {},
}

_SECTIONS: dict[str, tuple[Manifest, str]] = {
    "trainer quantity": (
        {"trainer": {"resources": {"limits": {"memory": "much"}}}},
        "spec.trainer.resources.limits.memory",
    ),
    "less than no memory": (
        {"trainer": {"resources": {"limits": {"memory": "-1Gi"}}}},
        "spec.trainer.resources.limits.memory",
    ),
    "less than no GPU": (
        {"trainer": {"resources": {"limits": {"nvidia.com/gpu": -1}}}},
        "spec.trainer.resources.limits.nvidia.com/gpu",
    ),
    "an account of no name": (
        {"trainer": {"serviceAccountName": "A b"}},
        "spec.trainer.serviceAccountName",
    ),
    "a Secret of another namespace": (
        {"storage": {"secretName": "../../kube-system/secrets/stores"}},
        "spec.storage.secretName",
    ),
    "a variable misspelt": (
        {"trainer": {"env": [{"name": "A", "valeu": "b"}]}},
        'unknown field "spec.trainer.env[0].valeu"',
    ),
    "a reader misspelt": (
        {"agent": {"kind": "ToolLoop", "browse": {"promt": "x"}}},
        'unknown field "spec.agent.browse.promt"',
    ),
    "a quantized cache without a correction": (
        a_group(engine={"cachePrecision": "FP8E4M3"}),
        "set algorithm.offPolicy.correction.kind to TIS, IcePop or MIS",
    ),
    "quantized weights without a correction": (
        a_group(engine={"weightPrecision": "FP8"}) | {"training": {"steps": 1}},
        "set algorithm.offPolicy.correction.kind to TIS, IcePop or MIS",
    ),
    "quantized weights of adapters": (
        a_group(engine={"weightPrecision": "FP8"})
        | {
            "training": {"steps": 1, "precision": "BF16", "lora": {"rank": 8}},
            "algorithm": {"offPolicy": {"correction": {"kind": "TIS"}}},
        },
        "weightPrecision is for training.precision BF16 without training.lora",
    ),
    "an engine of shorter requests than episodes": (
        a_group(engine={"contextTokens": 4096}),
        "agent.sampling.maxContextTokens, which is 8192",
    ),
    "experts that are divided among too many GPUs": (
        a_group(engine={"tensorParallel": 2, "expertParallel": 4}),
        "spec.samplers[1].template.engine.expertParallel",
    ),
    "more alternatives than guesses": (
        a_group(engine={"speculation": {"draftTokens": 4}}),
        "spec.samplers[1].template.engine.speculation.breadth",
    ),
    "replayed experts of guesses": (
        a_group(engine={"speculation": {}}) | {"algorithm": {"experts": {"routing": "Replay"}}},
        "spec.algorithm.experts.routing",
    ),
    "a tracker without a key": (
        {"training": {"steps": 1, "tracking": {"wandb": "Online"}}},
        "spec.training.tracking.secretName",
    ),
    "offloaded activations without checkpointing": (
        {
            "training": {"steps": 1, "offloadActivations": True, "gradientCheckpointing": False},
        },
        "spec.training.offloadActivations",
    ),
    "8-bit moments of two replicas": (
        {
            "trainer": {"replicas": 2},
            "training": {"steps": 1, "optimizer": {"kind": "AdamW8bit"}},
        },
        "spec.training.optimizer.kind",
    ),
    "a critic whose warm-up never ends": (
        {"algorithm": {"estimator": {"kind": "GAE"}, "critic": {"warmupSteps": 60}}},
        "60 is not below 60",
    ),
    "a teacher of nothing": (
        {"algorithm": {"teacher": "s3://abc/teacher"}},
        "spec.algorithm.teacher",
    ),
    "distillation without a teacher": (
        {"algorithm": {"objective": "Distillation"}},
        "spec.algorithm.teacher",
    ),
    "an evaluation of nothing": (
        {"algorithm": {"objective": "Evaluation"}, "data": {}, "training": {}},
        "algorithm.objective Evaluation needs data",
    ),
    "stored rollouts of no run": (
        {**STORED, "data": {}},
        "data.rollouts goes with algorithm.objective Offline",
    ),
    "stored rollouts beside new ones": (
        {"data": {"train": TRAIN, "rollouts": {"runId": "earlier"}}},
        "data.rollouts goes with algorithm.objective Offline",
    ),
    "stored rollouts beside records": (
        {**STORED, "data": {"train": TRAIN, "rollouts": {"runId": "earlier"}}},
        "data.rollouts takes the place of data.train",
    ),
    "a job's own stored rollouts": ({**STORED, "runId": "earlier"}, "this job's own run"),
    "stored rollouts with samplers": (
        {**STORED, "samplers": [{"name": "main"}]},
        "algorithm.objective Offline uses no samplers and no scorers",
    ),
    "stored rollouts without greedy ones": (
        {**STORED, "algorithm": {"objective": "Offline", "estimator": {"kind": "ReMax"}}},
        "spec.algorithm.estimator.kind",
    ),
    "no reference to offload": (
        {"training": {"steps": 1, "offloadReference": True}},
        "spec.training.offloadReference",
    ),
    "a reference without memory of its own": (
        {
            "algorithm": {"kl": {}},
            "training": {"steps": 1, "offloadReference": True, "lora": {"rank": 4}},
        },
        "spec.training.offloadReference",
    ),
    "a reference that is offloaded twice": (
        {
            "algorithm": {"kl": {}},
            "training": {"steps": 1, "offloadReference": True, "offloadParameters": True},
        },
        "keeps the reference in host memory too",
    ),
    "a critic in half precision": (
        {
            "algorithm": {"estimator": {"kind": "GAE"}, "critic": {}},
            "training": {"steps": 1, "precision": "FP16"},
        },
        "spec.training.precision",
    ),
    "engine quantity": (
        a_group(resources={"requests": {"cpu": "1 core"}}),
        "spec.samplers[1].template.resources.requests.cpu",
    ),
    "an engine of several pods": (
        a_group(engine={"nodesPerReplica": 2}),
        'unknown field "spec.samplers[1].template.engine.nodesPerReplica"',
    ),
    "a rollout that stops half-way": (
        a_group(rollout={"partition": "50%"}),
        'unknown field "spec.samplers[1].template.rollout.partition"',
    ),
    "a revision of a folder": (
        {"model": {"uri": "s3://abc/model", "revision": "main"}},
        "spec.model.revision",
    ),
    "two revisions": (
        {"model": {"uri": "hf://org/name@v1", "revision": "v2"}},
        "spec.model.revision",
    ),
    "a model on a volume": ({"model": {"uri": "file:///models/tiny"}}, "spec.model.uri"),
    "a tokenizer on a volume": (
        {"model": {"uri": "hf://org/name", "tokenizerUri": "file:///words"}},
        "spec.model.tokenizerUri",
    ),
    "weights from GPU to GPU": (
        {"weightSync": {"transport": {"kind": "NCCL"}}},
        'unknown field "spec.weightSync.transport.kind"',
    ),
    "updates that nobody orders": (
        {"weightSync": {"maxUnavailable": "25%"}},
        'unknown field "spec.weightSync.maxUnavailable"',
    ),
    "a relay that anyone reaches": (
        {"networkPolicy": "None", "weightSync": {"transport": {"relay": True}}},
        "spec.weightSync.transport.relay",
    ),
    "gradients that anyone reaches": (
        {"networkPolicy": "None", "trainer": {"replicas": 2}},
        "spec.networkPolicy",
    ),
    "gradients of processes that anyone reaches": (
        {"networkPolicy": "None", "trainer": {"processesPerReplica": 2}},
        "spec.networkPolicy",
    ),
    "settings of torchrun": (
        {"trainer": {"elastic": {"minReplicas": 1, "maxReplicas": 1, "rdzvConf": {"timeout": 9}}}},
        'unknown field "spec.trainer.elastic.rdzvConf"',
    ),
    "a meeting where metrics are": (
        {"trainer": {"elastic": {"minReplicas": 1, "maxReplicas": 1, "rdzvPort": 8080}}},
        "spec.trainer.elastic",
    ),
    "requests kept for nobody": (
        a_group(drain={"mode": "Pause"}),
        "spec.samplers[1].template.drain.mode",
    ),
    "a quota of no queue": (
        {"scheduling": {"samplerQuota": "None"}},
        "spec.scheduling.samplerQuota",
    ),
    "a gang": (
        {"scheduling": {"gang": {"minAvailable": 3}}},
        'unknown field "spec.scheduling.gang"',
    ),
    "a pause where nothing pauses": (
        {"weightSync": {"pause": "Abort"}, "training": {"steps": 1, "lora": {}}},
        "spec.weightSync.pause",
    ),
    "adapters of a part of what the engine stacks": (
        {"training": {"steps": 1, "lora": {"targets": ["k_proj", "v_proj"]}}},
        "spec.training.lora.targets",
    ),
    "adapters of the other half": (
        {"training": {"steps": 1, "lora": {"targets": ["up_proj", "o_proj"]}}},
        "spec.training.lora.targets",
    ),
    "adapters of a part of the experts' matrices": (
        {"training": {"steps": 1, "lora": {"experts": "Adapted", "targets": ["gate_proj"]}}},
        "training.lora.experts is Adapted, and targets leaves out matrices of the experts",
    ),
    "dropout of experts": (
        {"training": {"steps": 1, "lora": {"experts": "Adapted", "dropout": 0.5}}},
        "training.lora.dropout is 0.5, and adapters of experts have no dropout",
    ),
    "quantized experts": (
        {"training": {"steps": 1, "lora": {"experts": "Adapted", "quantization": "Int8"}}},
        "training.lora.quantization is Int8, and experts cannot be quantized",
    ),
    "a critic of weights that are quantized": (
        {
            "algorithm": {"estimator": {"kind": "GAE"}, "critic": {}},
            "training": {"steps": 1, "lora": {"quantization": "NF4"}},
        },
        "spec.training.lora",
    ),
    "a reference that moves away from the model": (
        {
            "algorithm": {"kl": {"refreshEverySteps": 5}},
            "training": {"steps": 1, "lora": {}},
        },
        "spec.algorithm.kl",
    ),
    "a clip of what has a gate": (
        {"algorithm": {"loss": {"kind": "SAPO", "clipHigh": 0.3}}},
        "spec.algorithm.loss.clipHigh",
    ),
    "a temperature of another loss": (
        {"algorithm": {"loss": {"kind": "GMPO", "tauNegative": 1.1}}},
        "spec.algorithm.loss.tauNegative",
    ),
    "a difference of probabilities that none can have": (
        {"algorithm": {"loss": {"kind": "DPPOTV", "clipHigh": 1.0}}},
        "spec.algorithm.loss",
    ),
    "a cap on the clip of a gate": (
        {
            "algorithm": {
                "loss": {"kind": "SAPO"},
                "offPolicy": {"correction": {"kind": "ImportanceCap"}},
            }
        },
        "spec.algorithm.offPolicy.correction.kind",
    ),
    "a push that nobody may make": (
        {"training": {"steps": 1, "checkpoint": {"hubRepo": "org/sums"}}},
        "spec.training.checkpoint.hubRepo",
    ),
    "a push to a repository that trusts nobody": (
        {
            "training": {"steps": 1, "checkpoint": {"hubRepo": "org/sums"}},
            "data": {
                "train": [{"name": "t", "uri": "s3://data/train.jsonl"}],
                "hub": {"trustedPublisher": "org/others"},
            },
        },
        "spec.training.checkpoint.hubRepo",
    ),
    "two ways to a token of the hub": (
        {
            "data": {
                "train": [{"name": "t", "uri": "hf://org/sums"}],
                "hub": {"trustedPublisher": "org", "tokenSecretRef": {"name": "hf"}},
            }
        },
        "spec.data.hub.trustedPublisher",
    ),
    "an identity for a mirror of the hub": (
        {
            "data": {
                "train": [{"name": "t", "uri": "hf://org/sums"}],
                "hub": {"trustedPublisher": "org", "endpoint": "https://mirror.example.org"},
            }
        },
        "spec.data.hub.trustedPublisher",
    ),
    "code of another kind": ({"agent": {"entryPoint": "a:b"}}, "spec.agent.entryPoint"),
    "options of nobody": ({"agent": {"options": {"a": 1}}}, "spec.agent.options"),
    "a reader of no results": (
        {"agent": {"browse": {"endpoints": [{"url": "http://a/v1", "model": "m"}]}}},
        "spec.agent.browse",
    ),
    "a purpose that the prompt leaves out": (
        {
            "agent": {
                "kind": "ToolLoop",
                "browse": {
                    "endpoints": [{"url": "http://a/v1", "model": "m"}],
                    "purpose": "to know",
                    "prompt": "Read ${result}",
                },
            }
        },
        "spec.agent.browse.prompt",
    ),
    "a user of another kind": (
        {"agent": {"user": {"endpoints": [{"url": "http://a/v1", "model": "m"}]}}},
        "spec.agent.user",
    ),
    "results that ReAct lacks": (
        {"agent": {"kind": "ReAct", "context": {"overflow": "DiscardTools"}}},
        "spec.agent",
    ),
    "a parser of ReAct": ({"agent": {"kind": "ReAct", "toolCallFormat": "Hermes"}}, "spec.agent"),
    "a scenario of nobody": (
        {
            "data": {
                "train": [{"name": "a", "uri": "s3://abc/a.jsonl", "columns": {"scenario": "aim"}}]
            }
        },
        "spec.training.evaluation.everySteps",
    ),
    "a user without words": (
        {
            "agent": {"kind": "Conversation"},
            "data": {"train": [{"name": "a", "uri": "s3://abc/a.jsonl"}]},
        },
        "spec.training.evaluation.everySteps",
    ),
    "a folder of records": (
        {"data": {"train": [{"name": "a", "uri": "s3://abc/a/"}]}},
        "spec.data.train[0].uri",
    ),
    "a file of tasks": (
        {"data": {"train": [{"name": "a", "format": "Harbor", "uri": "s3://abc/a.jsonl"}]}},
        "spec.data.train[0].uri",
    ),
    "tasks without pods of their own": (
        {"data": {"train": [{"name": "a", "format": "Harbor", "uri": "s3://abc/a/"}]}},
        "spec.data.train",
    ),
    "a sandbox of nobody": ({"sandbox": {"seconds": 3}}, "spec.sandbox"),
    "tools of programs": (
        {"agent": {"kind": "Code", "mcpServers": [{"name": "a", "url": "http://a/mcp"}]}},
        "spec.agent",
    ),
    "results that Code lacks": (
        {"agent": {"kind": "Code", "context": {"overflow": "DiscardTools"}}},
        "spec.agent.context",
    ),
    "no code": ({"agent": {"kind": "Custom"}}, "spec.agent.entryPoint"),
}
REFUSED_OPTIONS = {
    name: (a_job(**sections), named) for name, (sections, named) in _SECTIONS.items()
}
