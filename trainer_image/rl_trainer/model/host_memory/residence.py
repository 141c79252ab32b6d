"""Where models and moments lie while the device is the engine's: in host memory.

Both ways change places only, never a number. On a processor everything is in host memory as it is,
and nothing moves. Host memory is not pinned, so that it takes no more than the numbers need; the
way back is four times as fast as the way there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rl_trainer.model.host_memory import offload
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import sharding

HOST = torch.device("cpu")


@torch.no_grad()
def move(learner: Learner, *, to_device: bool) -> None:
    """Move all models with their moments, and let go of gradients and of torch's cache.

    What ``offloadParameters``, ``offloadOptimizer`` and ``offloadReference`` keep in host memory
    stays there.
    """
    device, training = learner.policy.device, learner.training
    learner.models.rest()
    target = device if to_device else HOST
    for optimizer in _optimizers(learner):
        optimizer.zero_grad(set_to_none=True)
    if not training.offload_parameters:
        for module in _modules(learner):
            module.to(target)
        for name, moment in _moments(learner):
            if not (to_device and training.offload_optimizer and name in offload.MOMENTS):
                moment.data = moment.to(target)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def _modules(learner: Learner) -> list[torch.nn.Module]:
    """Of the policy, the reference and the critic, each once."""
    models = learner.models
    reference = None if learner.training.offload_reference else models.reference
    modules = [
        models.policy.module,
        *([reference.policy.module] if reference is not None else []),
        *([models.critic.module] if models.critic is not None else []),
    ]
    return list({id(module): module for module in modules}.values())


def _optimizers(learner: Learner) -> list[torch.optim.Optimizer]:
    critic = learner.models.critic
    return [learner.optimizer, *([critic.optimizer] if critic is not None else [])]


def _moments(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    """What this rank holds of the optimizers' tensors, by the name of their kind."""
    for optimizer in _optimizers(learner):
        for held in optimizer.state.values():
            for name, value in held.items():
                if isinstance(value, Tensor):
                    yield name, sharding.part(value)
