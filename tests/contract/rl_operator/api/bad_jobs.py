"""Jobs that the API server refuses, and what it then names."""

from __future__ import annotations

from tests.samples.manifests import a_job, changed

REFUSED_JOBS = {
    "group of one under GRPO": (changed("spec.algorithm.groupSize", 1), "groupSize must be at"),
    "retraining what is too old": (
        changed("spec.algorithm.offPolicy", {"maxTrainings": 2, "retrainInterval": 2}),
        "maxTrainings needs maxStaleness of at least retrainInterval",
    ),
    "a wait for what no step outdates": (
        changed("spec.algorithm.offPolicy", {"maxStaleness": 0, "onStale": "Wait"}),
        "onStale Wait has no effect with maxStaleness 0",
    ),
    "a bound on no wait": (
        changed("spec.algorithm.offPolicy", {"maxWaitSeconds": 5}),
        "maxWaitSeconds goes with onStale Wait, and onStale is Drop",
    ),
    "a wait longer than progress may take": (
        changed("spec.algorithm.offPolicy", {"onStale": "Wait", "maxWaitSeconds": 1800}),
        "must be below lifecycle.progressDeadlineSeconds, which is 1800",
    ),
    "a member withheld from a group of one": (
        changed(
            "spec.algorithm",
            {
                "groupSize": 1,
                "estimator": {"kind": "REINFORCEPlusPlus"},
                "offPolicy": {"onStale": "Withhold"},
            },
        ),
        "Withhold leaves a member out of its group, and groupSize is 1",
    ),
    "a member withheld beside filters": (
        changed(
            "spec.algorithm",
            {"shaping": {"dropTruncated": True}, "offPolicy": {"onStale": "Withhold"}},
        ),
        "Withhold goes neither with estimator.kind MaxEnt",
    ),
    "turns replayed without a tool's word": (
        changed(
            "spec.agent",
            {
                "kind": "ToolLoop",
                "durability": "Turns",
                "mcpServers": [{"name": "a", "url": "http://a/mcp"}],
            },
        ),
        "set replayable to true on each of mcpServers and tools",
    ),
    "a tool replayed by nobody": (
        changed(
            "spec.agent",
            {
                "kind": "ToolLoop",
                "mcpServers": [{"name": "a", "url": "http://a/mcp", "replayable": True}],
            },
        ),
        "replayable on mcpServers and tools goes with agent.durability Turns",
    ),
    "one turn that is durable": (
        changed("spec.agent.durability", "Turns"),
        "durability Turns is for kinds ToolLoop, ReAct, Conversation, Program and Environment, "
        "and kind is SingleTurn",
    ),
    "a limit on one session": (
        changed(
            "spec.agent",
            {
                "kind": "ToolLoop",
                "mcpServers": [{"name": "a", "url": "http://a/mcp", "maxSessions": 2}],
            },
        ),
        "maxSessions goes with scope Episode",
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
        changed(
            "spec.rollouts",
            {"completion": {"kind": "Minimum", "minimum": 999, "deadlineSeconds": 60}},
        ),
        "must not exceed algorithm.groupSize",
    ),
    "a minimum of one under GRPO": (
        changed(
            "spec.rollouts",
            {"completion": {"kind": "Minimum", "minimum": 1, "deadlineSeconds": 60}},
        ),
        "rollouts.completion.minimum is 1, and algorithm.estimator.kind GRPO compares more members",
    ),
    "a minimum below the best of k": (
        changed(
            "spec",
            {
                **a_job()["spec"],
                "algorithm": {"groupSize": 8, "estimator": {"kind": "PassAtK", "k": 4}},
                "rollouts": {
                    "completion": {"kind": "Minimum", "minimum": 3, "deadlineSeconds": 60}
                },
            },
        ),
        "rollouts.completion.minimum is 3, and algorithm.estimator.kind PassAtK compares more",
    ),
    "negative steps": (changed("spec.training.steps", -1), "spec.training.steps"),
    "no steps": (
        changed("spec.training.steps", ...),
        "neither training.steps nor training.epochs is set: set one",
    ),
    "nothing to train on": (changed("spec.data", {}), "data.train is missing: name at least one"),
    "steps and epochs": (
        changed("spec.training.epochs", 2),
        "training.steps and training.epochs are both set: remove one",
    ),
    "steps are no text": (changed("spec.training.steps", "many"), "spec.training.steps"),
    "warm-up after the end": (
        changed("spec.training.optimizer.warmupSteps", 10_000),
        "warmupSteps must not exceed",
    ),
    "evaluation after the end": (
        changed("spec.training.evaluation.everySteps", 10_000),
        "everySteps must not exceed",
    ),
    "policies too rare": (
        changed("spec.weightSync.everySteps", 100),
        "weightSync.everySteps must be at most",
    ),
    "evaluation without data": (changed("spec.data.validation", []), "needs data.validation"),
    "no room for the prompt": (
        changed("spec.agent.sampling.maxTokensPerTurn", 8192),
        "must be smaller than",
    ),
    "zero learning rate": (
        changed("spec.training.optimizer.learningRate", 0),
        "spec.training.optimizer.learningRate",
    ),
    "a demonstration with samplers": (
        changed("spec.algorithm.objective", "SFT"),
        "algorithm.objective SFT uses no samplers and no scorers: remove spec.samplers and",
    ),
    "no scorer": (
        changed("spec.reward.scorers", []),
        "spec.reward.scorers is empty, and algorithm.objective RL needs rewards",
    ),
    "no sampler": (
        changed("spec.samplers", []),
        "spec.samplers is empty, and algorithm.objective RL needs samplers",
    ),
    "two groups of a name": (
        changed("spec.samplers", [{"name": "main"}, {"name": "main"}]),
        "spec.samplers[1]",
    ),
    "no minimum of samplers": (
        changed("spec.samplers.0.template.autoscaling.minReplicas", 0),
        "minReplicas",
    ),
    "a local model": (changed("spec.model.uri", "/models/tiny"), "spec.model.uri"),
    "two ways to ask": (
        changed("spec.data.train.0.columns", {"query": "q", "messages": "m"}),
        "exclude each other",
    ),
    "split of a file": (changed("spec.data.train.0.split", "train"), "split is for hf:// sources"),
    "two sources of a name": (
        changed("spec.data.validation", [{"name": "a", "uri": "hf://o/n"}] * 2),
        "spec.data.validation[1]",
    ),
    "a weight of nothing": (changed("spec.data.train.0.weight", 0), "spec.data.train[0].weight"),
    "weight of validation data": (
        changed("spec.data.validation.0.weight", 2),
        'unknown field "spec.data.validation[0].weight',
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
                        "action": "Ignore",
                        "onExitCodes": {"values": [1]},
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
        changed("spec.samplers.0.template.autoscaling", {"maxReplicas": 4}),
        "of mode Builtin alone",
    ),
    "a rollout that cannot move": (
        changed("spec.samplers.0.template.rollout", {"maxUnavailable": "0%", "maxSurge": 0}),
        "must not both be 0",
    ),
    "a number of pods in quotes": (
        changed("spec.samplers.0.template.rollout", {"maxUnavailable": "1"}),
        "maxUnavailable",
    ),
    "more pods than any pool has": (
        changed("spec.samplers.0.template.rollout", {"maxSurge": 3_000_000_000}),
        "maxSurge",
    ),
    "no share": (
        changed("spec.samplers.0.template.rollout", {"maxUnavailable": "many"}),
        "maxUnavailable",
    ),
    "a backoff above its bound": (
        changed("spec.lifecycle.restartBackoffSeconds", 900),
        "lifecycle.restartBackoffMaxSeconds must be at least restartBackoffSeconds",
    ),
    "a meeting of etcd": (
        changed(
            "spec.trainer.elastic", {"minReplicas": 1, "maxReplicas": 1, "rdzvBackend": "etcd"}
        ),
        'unknown field "spec.trainer.elastic.rdzvBackend"',
    ),
    "a policy of nobody": (changed("spec.networkPolicy", "DenyAll"), '"RunOnly", "None"'),
    "a tokenizer on a web page": (
        changed("spec.model.tokenizerUri", "https://huggingface.co/o/n"),
        "spec.model.tokenizerUri",
    ),
    "name starts with a digit": (changed("metadata.name", "1a"), "metadata.name must be"),
}
