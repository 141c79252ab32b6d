"""Jobs that the API server refuses, and what it then names."""

from __future__ import annotations

from tests.manifests import a_job, changed

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
    "no steps": (changed("spec.training.steps", ...), "either steps or epochs"),
    "nothing to train on": (changed("spec.data", {}), "and data.train"),
    "steps and epochs": (changed("spec.training.epochs", 2), "either steps or epochs"),
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
    "unknown loss": (changed("spec.algorithm.loss.kind", "Magic"), "spec.algorithm.loss.kind"),
    "dual clip for GSPO": (
        changed("spec.algorithm.loss", {"kind": "GSPO", "dualClip": 3.0}),
        "loss.dualClip is for",
    ),
    "importance cap for PPO": (
        changed("spec.algorithm.loss.importanceCap", 2.0),
        "loss.importanceCap is for",
    ),
    "constant length without one": (
        changed("spec.algorithm.loss.aggregation", "ConstantLength"),
        "loss.length goes with",
    ),
    "length of a mean": (changed("spec.algorithm.loss.length", 512), "loss.length goes with"),
    "cap without correction": (
        changed("spec.algorithm.offPolicy.correction", {"cap": 2.0}),
        "correction.cap is for kind",
    ),
    "lower bound of OPSM": (
        changed(
            "spec.algorithm.offPolicy.correction", {"kind": "OPSM", "threshold": 1.0, "low": 0.5}
        ),
        "correction.low is for",
    ),
    "empty range": (
        changed("spec.algorithm.offPolicy.correction", {"kind": "IcePop", "low": 1.0, "cap": 1.0}),
        "smaller than cap",
    ),
    "level of IcePop": (
        changed("spec.algorithm.offPolicy.correction", {"kind": "IcePop", "level": "Geometric"}),
        "correction.level is for",
    ),
    "OPSM without threshold": (
        changed("spec.algorithm.offPolicy.correction.kind", "OPSM"),
        "correction.threshold goes",
    ),
    "decay of TIS": (
        changed("spec.algorithm.offPolicy.correction", {"kind": "TIS", "decay": 1.0}),
        "is for kind ImportanceCap",
    ),
    "decay under strict bounds": (
        changed(
            "spec.algorithm.offPolicy.correction",
            {"kind": "ImportanceCap", "decay": 1.0, "strictInBound": True},
        ),
        "changes nothing",
    ),
    "horizon shorter than a fifth of a step": (
        changed(
            "spec",
            {
                **a_job()["spec"],
                "algorithm": {
                    "groupSize": 8,
                    "kl": {"controller": {"kind": "Adaptive", "target": 0.1, "horizon": 16}},
                },
                "training": {"steps": 1, "promptsPerStep": 10},
            },
        ),
        "horizon is 16, and a step of 80 rollouts could take the coefficient to 0",
    ),
    "a mean reward that may be negative": (
        changed("spec.algorithm", {"estimator": {"kind": "MaxRL"}, "kl": {"placement": "Reward"}}),
        "MaxRL divides by the mean reward",
    ),
    "a baseline of no estimator that has one": (
        changed("spec.algorithm.estimator", {"baselineDecay": 0.9}),
        "estimator.baselineDecay is for kind RAE",
    ),
    "zero advantages of a whole step": (
        changed(
            "spec.algorithm",
            {"estimator": {"kind": "GRPOBatchStd"}, "shaping": {"dropZeroAdvantage": True}},
        ),
        "need an estimator of single groups",
    ),
    "weights that ignore the rewards": (
        changed(
            "spec.algorithm",
            {
                "groupSize": 8,
                "loss": {"kind": "MaxEnt"},
                "estimator": {"kind": "MaxEnt", "maxent": {"qEpsilon": 0.125}},
            },
        ),
        "qEpsilon is 0.125: with groupSize 8 the rewards would count for nothing",
    ),
    "weighed twice": (
        changed(
            "spec.algorithm",
            {"loss": {"kind": "DecoupledPPO"}, "offPolicy": {"correction": {"kind": "TIS"}}},
        ),
        "weighs by p / μ itself",
    ),
    "updates that leave a rest": (
        changed("spec.training.promptsPerUpdate", 3),
        "must divide promptsPerStep",
    ),
    "minimum of a constant rate": (
        changed("spec.training.optimizer.minimumRatio", 0.1),
        "minimumRatio is for",
    ),
    "k without pass@k": (changed("spec.algorithm.estimator", {"k": 2}), "estimator.k is for"),
    "pass@k without k": (
        changed("spec.algorithm.estimator.kind", "PassAtK"),
        "estimator.k goes with",
    ),
    "pass@k of more than there are": (
        changed("spec.algorithm.estimator", {"kind": "PassAtK", "k": 1000}),
        "must not exceed group",
    ),
    "discount for GRPO": (changed("spec.algorithm.estimator.gamma", 0.9), "estimator.gamma is for"),
    "turns under GRPO": (
        changed("spec.algorithm.estimator.perTurn", True),
        "estimator.perTurn is for",
    ),
    "signs of MaxEnt": (
        changed(
            "spec.algorithm",
            {
                "estimator": {"kind": "MaxEnt"},
                "loss": {"kind": "MaxEnt"},
                "shaping": {"forceSign": True},
            },
        ),
        "weighs whole groups",
    ),
    "spread without resampling": (
        changed("spec.algorithm.shaping.minRewardSpread", 0.1),
        "needs dynamicSampling",
    ),
    "two thresholds": (
        changed("spec.algorithm.shaping", {"minimalAdvantage": 0.1, "dropZeroAdvantage": True}),
        "drops zero advantages too",
    ),
    "two filters of zero": (
        changed(
            "spec.algorithm.shaping", {"skipNonPositiveAdvantage": True, "dropZeroAdvantage": True}
        ),
        "skipNonPositiveAdvantage drops zero advantages too",
    ),
    "filter of a whole step": (
        changed(
            "spec.algorithm",
            {"estimator": {"kind": "REINFORCEPlusPlus"}, "shaping": {"dropZeroAdvantage": True}},
        ),
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
    "second KL in the loss beside the first": (
        changed("spec.algorithm.kl", {"loss": {"coefficient": 0.1}}),
        "set placement to Reward",
    ),
    "gradient of a second KL that its estimator has": (
        changed(
            "spec.algorithm.kl",
            {"placement": "Reward", "loss": {"estimator": "K2", "gradient": "StraightThrough"}},
        ),
        "kl.loss.gradient StraightThrough is what estimator K2 has anyway",
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
        changed("spec.algorithm.loss.kind", "MaxEnt"),
        "loss.kind MaxEnt go together",
    ),
    "MaxEnt's options for GRPO": (
        changed("spec.algorithm.estimator.maxent", {"tau": 1.0}),
        "estimator.maxent is for",
    ),
    "MaxEnt with KL in the reward": (
        changed(
            "spec.algorithm",
            {
                "estimator": {"kind": "MaxEnt"},
                "loss": {"kind": "MaxEnt"},
                "kl": {"placement": "Reward"},
            },
        ),
        "kl.placement must be Loss",
    ),
    "MaxEnt of half a group": (
        changed(
            "spec.algorithm",
            {
                "estimator": {"kind": "MaxEnt"},
                "loss": {"kind": "MaxEnt"},
                "shaping": {"balanceSample": True},
            },
        ),
        "weighs whole groups",
    ),
    "clip of MaxEnt without its term": (
        changed(
            "spec.algorithm",
            {"estimator": {"kind": "MaxEnt"}, "loss": {"kind": "MaxEnt", "clipLow": 0.1}},
        ),
        "without clipCoefficient",
    ),
    "crossed clips": (
        changed("spec.algorithm.loss", {"kind": "PPOClip", "clipLow": 0.3, "clipHigh": 0.2}),
        "loss.clipLow 0.3 must not exceed loss.clipHigh 0.2",
    ),
    "one scorer twice": (
        changed("spec.reward.scorers", [{"kind": "Math"}, {"kind": "Math", "weight": 2.0}]),
        "two scorers of one kind",
    ),
    "tau's bounds crossed": (
        changed(
            "spec.algorithm",
            {
                "loss": {"kind": "MaxEnt"},
                "estimator": {
                    "kind": "MaxEnt",
                    "maxent": {"tuneTau": {"targetEntropy": 1.0, "minimum": 2.0, "maximum": 1.0}},
                },
            },
        ),
        "must not exceed maximum",
    ),
    "filter before the KL is known": (
        changed(
            "spec.algorithm",
            {"kl": {"placement": "Reward"}, "shaping": {"dropZeroAdvantage": True}},
        ),
        "under kl.placement Reward",
    ),
    "GAE without critic": (changed("spec.algorithm.estimator.kind", "GAE"), "critic go together"),
    "critic without GAE": (
        changed("spec.algorithm.critic", {"warmupSteps": 1}),
        "critic go together",
    ),
    "lambda for GRPO": (changed("spec.algorithm.estimator.lam", 0.9), "estimator.lam is for"),
    "a demonstration with samplers": (
        changed("spec.algorithm.objective", "SFT"),
        "go with every algorithm.objective but SFT and Offline",
    ),
    "no scorer": (changed("spec.reward.scorers", []), "spec.reward.scorers"),
    "no sampler": (changed("spec.samplers", []), "spec.samplers"),
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
