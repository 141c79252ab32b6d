"""The frozen policy that the trained one is compared with."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import lora
from rl_trainer.model.parallel import pieces, sharding
from rl_trainer.model.parallel.on_mesh import divided
from rl_trainer.model.parallel.pieces import StoredTensor
from rl_trainer.model.policy import Policy


class Reference:
    """A copy of a policy that no optimizer touches."""

    def __init__(self, policy: Policy, *, world: World = ALONE) -> None:
        """Copy a policy whose parameters are not divided yet, and divide the copy's."""
        module = copy.deepcopy(policy.module).eval().requires_grad_(False)
        self.policy = divided(dataclasses.replace(policy, module=module), world)
        self._parameters = dict(self.policy.module.named_parameters())

    def refresh(self, policy: Policy) -> None:
        """Take over the policy's weights as they are now."""
        weights = dict(policy.module.named_parameters())
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                # By parts: one of the two may lie in host memory, and the policy be undivided.
                sharding.part(parameter).copy_(sharding.part(weights[name]))

    def state(self) -> dict[str, Tensor]:
        """Its weights, tied ones once: its own, no copies."""
        return dict(self._parameters)

    def load(self, weights: Mapping[str, StoredTensor]) -> None:
        """Put weights in; KeyError where one is missing."""
        pieces.fill((parameter, weights[name]) for name, parameter in self._parameters.items())


class AdaptersOff(Reference):
    """The policy itself with its adapters switched off: the model that training began with.

    No second copy is held; it is never refreshed (``spec`` refuses that with adapters).
    """

    def __init__(self, policy: Policy) -> None:
        """Share a divided policy's module, run with its adapters switched off."""
        routers = policy.routers

        @contextlib.contextmanager
        def around(module: Any) -> Iterator[None]:
            aside = contextlib.nullcontext() if routers is None else routers.aside()
            with aside, lora.switched_off(module):
                yield

        self.policy = dataclasses.replace(policy, around=around, routers=None)
        self._parameters = {}
