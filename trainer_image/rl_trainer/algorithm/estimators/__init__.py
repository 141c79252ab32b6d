"""Advantage estimators by the name that ``spec.algorithm.estimator.kind`` gives them."""

from __future__ import annotations

from rl_trainer.algorithm.estimators import (
    dr_grpo,
    gae,
    grpo,
    grpo_batch_std,
    max_rl,
    maxent,
    opo,
    pass_at_k,
    pass_at_k_std,
    rae,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    remax,
    rloo,
)
from rl_trainer.algorithm.estimators.records import EstimatorFunction, of_each_group

ESTIMATORS: dict[str, EstimatorFunction] = {
    "GRPO": of_each_group(grpo.advantages),
    "GRPOBatchStd": grpo_batch_std.advantages,
    "DrGRPO": of_each_group(dr_grpo.advantages),
    "RLOO": of_each_group(rloo.advantages),
    "ReMax": of_each_group(remax.advantages),
    "REINFORCEPlusPlus": reinforce_plus_plus.advantages,
    "REINFORCEPlusPlusBaseline": reinforce_plus_plus_baseline.advantages,
    "OPO": of_each_group(opo.advantages),
    "PassAtK": of_each_group(pass_at_k.advantages),
    "PassAtKStd": of_each_group(pass_at_k_std.advantages),
    "MaxRL": of_each_group(max_rl.advantages),
    "RAE": rae.advantages,
    "GAE": gae.advantages,
    "MaxEnt": lambda groups, section, state: [
        list(maxent.advantages(group, section, state)) for group in groups
    ],
}
