"""Rules of a trainer and an engine that share a pod's devices by turns, in CEL."""

from __future__ import annotations

from rl_contracts.spec.base import rule

SEPARATE = "self.placement == 'Separate' || "

OF_PLACEMENT = (
    rule(
        f"{SEPARATE}(size(self.samplers) == 1 && !has(self.samplers[0].poolRef))",
        "placement is Colocated, and the trainer's pod has one engine: have one group in "
        "spec.samplers, without poolRef",
        field="placement",
    ),
    rule(
        f"{SEPARATE}self.algorithm.objective in ['RL', 'Distillation']",
        "placement is Colocated, and under algorithm.objective {self.algorithm.objective} trainer "
        "and engine have nothing to take turns for: set placement to Separate",
        field="placement",
    ),
    rule(
        f"{SEPARATE}(self.trainer.replicas == 1 && !has(self.trainer.elastic))",
        "placement is Colocated, and weights are handed over within one pod: set trainer.replicas "
        "to 1 and remove trainer.elastic, or set placement to Separate",
        field="placement",
    ),
    rule(
        f"{SEPARATE}!has(self.training.lora)",
        "placement is Colocated, which trains all weights: the engine gives up the model that "
        "adapters belong to in each turn; remove training.lora or set placement to Separate",
        field="placement",
    ),
    rule(
        f"{SEPARATE}(self.weightSync.pause == 'Retract' && !self.weightSync.transport.relay)",
        "placement is Colocated: the engine gives up its cache in each turn, and no other pod has "
        "the weights; remove weightSync.pause and weightSync.transport.relay",
        field="weightSync",
    ),
    rule(
        f"{SEPARATE}self.samplers.all(group, !has(group.template) || "
        "!has(group.template.autoscaling) || "
        "(group.template.autoscaling.?mode.orValue('None') == 'None' && "
        "group.template.autoscaling.?minReplicas.orValue(1) == 1))",
        "placement is Colocated, and there are as many engines as trainer pods: remove "
        "samplers[].template.autoscaling",
        field="samplers",
    ),
)
"""What one pod with both cannot do."""
