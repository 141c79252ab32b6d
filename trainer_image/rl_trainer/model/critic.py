"""The critic: a value model beside the policy, with an optimizer of its own."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.critic import Critic as CriticSection
from rl_contracts.spec.training.training import Training
from rl_trainer.algorithm import minibatches
from rl_trainer.algorithm.losses import value
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.distributed.context_ranks import ContextRanks
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.errors import TrainingFailedError
from rl_trainer.model import forward, memory, optimizer
from rl_trainer.model.parallel import on_mesh, pieces, sharding
from rl_trainer.model.parallel.pieces import StoredTensor
from rl_trainer.model.policy import Policy, own_states, own_tokens, run_row


class ValueModel(torch.nn.Module):
    """A model's layers with a head of zeros."""

    def __init__(self, layers: Any, *, width: int) -> None:
        super().__init__()
        device = next(layers.parameters()).device
        self.layers, self.head = layers, torch.nn.Linear(width, 1, device=device)
        self.begin()

    def begin(self) -> None:
        """Have the head predict nothing."""
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, packed: Packed, context: ContextRanks | None = None) -> Tensor:
        """What is still to come at each generated token of this rank, ``[n, 1]``."""
        hidden = run_row(self.layers, packed, context)
        values: Tensor = self.head(own_states(hidden, packed, context))
        return values


class Critic:
    """Predicts, before each generated token, the reward that is still to come."""

    def __init__(
        self,
        model: Policy,
        section: CriticSection,
        training: Training,
        *,
        shared: bool,
        world: World = ALONE,
    ) -> None:
        """Make a critic of a model's layers as they are, with a head of zeros.

        Args:
            model: whose layers; its parameters are not divided yet.
            section: the manifest's.
            training: the manifest's.
            shared: the model is the policy too, so that its layers are copied.
            world: the ranks among which the critic is divided.
        """
        self._model, self._section, self._training = model, section, training
        self._world = world
        layers = model.module.base_model
        self._module = ValueModel(
            copy.deepcopy(layers) if shared else layers,
            width=model.module.get_output_embeddings().weight.shape[1],
        )
        self._run: Callable[..., Tensor] = self._module
        self._context: ContextRanks | None = None
        if world.mesh is not None:
            self._run = on_mesh.divide(
                self._module,
                world.mesh,
                model=self._module.layers,
                entry=ValueModel.forward,
                offload=model.offload_parameters,
            )
            self._context = on_mesh.context_ranks(world.mesh)
        if model.stored is not None:
            on_mesh.fill(self._module.layers, model, world)
            self._module.head.to_empty(device=next(self._module.layers.parameters()).device)
            self._module.begin()
        self._module.train()
        self.parameters = dict(self._module.named_parameters())
        # All but the rate is as of the policy: betas, epsilon, weight decay, warm-up, schedule.
        self._options = training.optimizer.model_copy(
            update={"learning_rate": section.learning_rate}
        )
        self.optimizer = optimizer.build(self.parameters, self._options)

    @property
    def module(self) -> torch.nn.Module:
        """Layers and head."""
        return self._module

    def values(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Of each sample's generated tokens, float32 ``[num_generated]``."""
        return forward.values(
            self._module, self._microbatches(samples), self._values, world=self._world
        )

    def rate(self, *, step: int) -> float:
        """Learning rate of the updates that make step ``step`` by the manifest's schedule."""
        return optimizer.learning_rate(self._options, step=step, steps=self._training.total_steps)

    def update(self, samples: Sequence[Sample], *, step: int, rate: float) -> float:
        """Train on what came of the step's samples; returns the mean loss of its updates.

        Raises:
            TrainingFailedError: loss or gradient is not finite; that update was not made.
        """
        section = self._section
        optimizer.set_rate(self.optimizer, rate)
        if section.value_clip is not None:
            samples = [
                dataclasses.replace(sample, values=before)
                for sample, before in zip(samples, self.values(samples), strict=True)
            ]
        losses = [
            self._update([samples[index] for index in chosen], step=step)
            for chosen in self._plan(samples, step=step)
        ]
        return sum(losses) / len(losses)

    def share(self, samples: Sequence[Sample]) -> forward.Share:
        """What this rank computes of samples that all ranks compute together."""
        return forward.share(
            samples,
            max_tokens=self._section.max_tokens_per_microbatch or self._training.microbatch_tokens,
            max_sequences=self._training.max_sequences_per_microbatch,
            work=self._model.sequence_work,
            world=self._world,
        )

    def parts(self, samples: Sequence[Sample], *, step: int) -> list[list[int]]:
        """Samples that ``update`` computes together, by their indices, pass by pass."""
        everything = list(range(len(samples)))
        asked = [] if self._section.value_clip is None else [everything]
        return [*asked, *self._plan(samples, step=step)]

    def state(self) -> dict[str, Tensor]:
        """Weights and moments: its own, no copies."""
        moments = optimizer.state(self.optimizer, self.parameters)
        return pieces.under("weights/", self.parameters) | pieces.under("moments/", moments)

    def load(self, saved: Mapping[str, StoredTensor]) -> None:
        """Put back what ``state`` returned; KeyError where a weight is missing."""
        pieces.fill(
            (parameter, saved[f"weights/{name}"]) for name, parameter in self.parameters.items()
        )
        moments = pieces.below("moments/", saved)
        optimizer.restore(self.optimizer, self.parameters, moments, self._training)

    def _values(self, packed: Packed) -> Tensor:
        offload, device = self._model.offload, self._model.device
        with self._model.precision(), memory.saving(device, offload=offload):
            own = self._run(packed, self._context)[:, 0].float()
        if self._context is None:
            return own
        first = own_tokens(packed, self._context).start
        return self._context.together(own, first=first, count=len(packed.targets))

    def _plan(self, samples: Sequence[Sample], *, step: int) -> list[list[int]]:
        return minibatches.updates(
            [sample.group for sample in samples],
            prompts_per_update=self._section.prompts_per_update,
            passes=self._section.passes_per_step,
            seed=self._training.seed,
            step=step,
        )

    def _update(self, samples: Sequence[Sample], *, step: int) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        count = sum(sample.num_generated for sample in samples)
        parts = self._world.gather_shares(self._accumulate(samples, denominator=count))
        broken = [rollout for _, rollouts in parts for rollout in rollouts]
        if broken:
            raise _not_finite(step, f"loss of rollout {broken[0]}")
        norm = sharding.clip_gradients(
            self.parameters.values(), max_norm=self._section.max_gradient_norm
        )
        if not math.isfinite(norm):
            raise _not_finite(step, "gradient")
        optimizer.step(self.optimizer, self._training)
        return sum(loss for losses, _ in parts for loss in losses) / count

    def _accumulate(
        self, samples: Sequence[Sample], *, denominator: int
    ) -> tuple[list[float], list[str]]:
        """Add this rank's gradient; its microbatches' losses, and rollouts with a broken loss."""
        sums, broken = [0.0], []
        for packed in self._microbatches(samples):
            losses = self._losses(packed)
            part = losses.sum()
            (part / denominator).backward()  # type: ignore[no-untyped-call]  # torch's
            if not packed.filler:
                sums.append(float(part.detach()))
                sequences = packed.sequences[~torch.isfinite(losses.detach())].tolist()
                broken += [_name(samples, packed, sequence) for sequence in sequences]
        return sums, broken

    def _losses(self, packed: Packed) -> Tensor:
        assert packed.returns is not None, "the batch holds no returns"
        losses = value.loss(
            self._values(packed), packed.returns, old=packed.values, clip=self._section.value_clip
        )
        return losses * packed.weights

    def _microbatches(self, samples: Sequence[Sample]) -> list[Packed]:
        return forward.microbatches(samples, self.share(samples), device=self._model.device)


def _name(samples: Sequence[Sample], packed: Packed, sequence: int) -> str:
    return samples[packed.members[sequence]].rollout


def _not_finite(step: int, what: str) -> TrainingFailedError:
    return TrainingFailedError(
        reason="NotFinite",
        message=f"Step {step} was not made: the critic's {what} is not finite. "
        "A lower spec.algorithm.critic.learningRate may help.",
    )
