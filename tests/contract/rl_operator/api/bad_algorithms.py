"""Jobs whose algorithm the API server refuses, and what it then names."""

from __future__ import annotations

from tests.samples.manifests import a_job, changed

REFUSED_ALGORITHMS = {
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
        "offPolicy.correction.kind TIS would do it again",
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
        "kind Adaptive needs target and horizon",
    ),
    "fixed with a target": (
        changed("spec.algorithm.kl", {"controller": {"target": 0.1, "horizon": 100}}),
        "kind Adaptive needs target and horizon",
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
        "kl.loss.gradient StraightThrough is the same as Plain",
    ),
    "gradient of a reward": (
        changed("spec.algorithm.kl", {"placement": "Reward", "gradient": "StraightThrough"}),
        "kl.gradient is for placement Loss",
    ),
    "K2 straight through": (
        changed("spec.algorithm.kl", {"estimator": "K2", "gradient": "StraightThrough"}),
        "is the same as Plain with estimator K2",
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
}
