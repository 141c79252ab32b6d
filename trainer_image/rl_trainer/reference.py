"""The frozen policy that the trained one is compared with."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from rl_trainer.model import Policy


class Reference:
    """A copy of a policy that no optimizer touches."""

    def __init__(self, policy: Policy) -> None:
        module = copy.deepcopy(policy.module).eval().requires_grad_(False)
        self.policy = dataclasses.replace(policy, module=module)

    def refresh(self, policy: Policy) -> None:
        """Take over the policy's weights as they are now."""
        self.load(dict(policy.module.named_parameters()))

    def state(self) -> dict[str, Tensor]:
        """Its weights on the CPU, tied ones once."""
        return {
            name: one.detach().to("cpu", copy=True)
            for name, one in self.policy.module.named_parameters()
        }

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Put weights in; KeyError where one is missing."""
        with torch.no_grad():
            for name, parameter in self.policy.module.named_parameters():
                parameter.copy_(weights[name])
