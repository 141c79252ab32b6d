"""One update of the weights: the gradient of some samples, its norm, and the optimizer's step."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_trainer.algorithm import loss_scale, objective
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.objective import Terms
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Tally
from rl_trainer.errors import TrainingFailedError
from rl_trainer.model import optimizer as optimizers
from rl_trainer.model.accumulate import accumulate, values_by_sample
from rl_trainer.model.experts import router_losses
from rl_trainer.model.models import Models
from rl_trainer.model.parallel import sharding

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WeightUpdater:
    """Makes updates of the weights, one at a time.

    Args:
        models: the policy, and what it is compared with.
        parameters: of the policy, by name.
        optimizer: of these parameters.
    """

    models: Models
    parameters: Mapping[str, torch.nn.Parameter]
    optimizer: torch.optim.Optimizer

    def make(
        self, samples: Sequence[Sample], *, step: int, controls: Controls, tally: Tally, first: bool
    ) -> tuple[dict[int, Tensor], Controls]:
        """Accumulate the gradient of ``samples`` and make one update of the weights.

        Args:
            samples: of the update, the same on all ranks.
            step: the training step that is being made, ≥ 1.
            controls: as the update before left them.
            tally: the step's totals; this update is added to them.
            first: whether the samples are trained for the first time in this step.

        Returns:
            ``Terms.values`` of the samples that this rank computed, by index, and the controls for
            the next update.

        Raises:
            TrainingFailedError: loss or gradient is not finite; the update was not made.
        """
        self.optimizer.zero_grad(set_to_none=True)
        counts = [sample.num_generated for sample in samples]
        denominator = objective.denominator(counts, self.models.algorithm)
        scale, counted = self._scale(controls), tally if first else None
        with router_losses.applied(self.models, samples, tally=counted, scale=scale):
            own, values = self._accumulate_all(
                samples, step=step, denominator=denominator, controls=controls
            )
            shared = self.models.world.gather_shares(own)
        all_terms = [terms for part in shared for terms in part]
        broken = [index for terms in all_terms for index in terms.not_finite]
        if broken:
            raise _not_finite(step=step, what="loss", sample=samples[broken[0]])
        norm = self._clipped_norm(scale)
        finite = math.isfinite(norm)
        if not finite and scale <= loss_scale.LEAST:
            culprit = self._culprit(samples, step=step, controls=controls)
            raise _not_finite(step=step, what="gradient", sample=culprit)
        loss = tally.add(
            all_terms,
            denominator=denominator,
            norm=norm if finite else None,
            tokens=sum(counts),
            first=first,
        )
        if not math.isfinite(loss):
            raise _not_finite(step=step, what="loss", sample=None)
        if self.scales:
            controls = loss_scale.after(controls, finite=finite)
        if finite:
            optimizers.step(self.optimizer, self.models.training)
        else:
            log.warning(
                "an update of step %d is skipped: its gradient is not finite at a loss scale of "
                "%g; the next one has %g",
                step,
                scale,
                controls.loss_scale,
            )
        return values, controls

    @property
    def scales(self) -> bool:
        """Whether losses are scaled, and an update may be skipped."""
        return self.models.training.precision == "FP16"

    def _scale(self, controls: Controls) -> float:
        return controls.loss_scale if self.scales else 1.0

    def _clipped_norm(self, scale: float) -> float:
        """Divide the gradient by the scale, clip it, and return its norm before it was clipped."""
        self.models.rest()
        if scale != 1.0:
            sharding.scale_gradients(self.parameters.values(), 1 / scale)
        limit = self.models.training.optimizer.max_gradient_norm
        return sharding.clip_gradients(self.parameters.values(), max_norm=limit)

    def _accumulate_all(
        self, samples: Sequence[Sample], *, step: int, denominator: int, controls: Controls
    ) -> tuple[list[Terms], dict[int, Tensor]]:
        """Add the gradient of this rank's microbatches; returns their terms and tokens' values."""
        own: list[Terms] = []
        values: dict[int, Tensor] = {}
        for packed in self.models.microbatches(samples):
            terms = self._accumulate(packed, step=step, denominator=denominator, controls=controls)
            if not packed.filler:
                values |= values_by_sample(packed, terms)
                own += [dataclasses.replace(term, values=None) for term in terms]
        return own, values

    def _accumulate(
        self, packed: Packed, *, step: int, denominator: int, controls: Controls
    ) -> list[Terms]:
        return accumulate(
            self.models,
            packed,
            step=step,
            denominator=denominator,
            kl_coefficient=controls.kl_coefficient,
            scale=self._scale(controls),
        )

    def _culprit(
        self, samples: Sequence[Sample], *, step: int, controls: Controls
    ) -> Sample | None:
        """The first sample whose gradient alone is not finite; None where only their sum is not."""
        for sample in samples:
            self.optimizer.zero_grad(set_to_none=True)
            for packed in self.models.microbatches([sample]):
                self._accumulate(packed, step=step, denominator=1, controls=controls)
            gradients = [
                parameter.grad
                for parameter in self.parameters.values()
                if parameter.grad is not None
            ]
            finite = all(
                bool(torch.isfinite(sharding.part(gradient)).all()) for gradient in gradients
            )
            if not all(self.models.world.gather(finite)):
                return sample
        return None


def _not_finite(*, step: int, what: str, sample: Sample | None) -> TrainingFailedError:
    of = f"of rollout {sample.rollout}" if sample is not None else "of all rollouts together"
    return TrainingFailedError(
        reason="NotFinite",
        message=f"Step {step} was not made: the {what} {of} is not finite. "
        "A lower spec.training.optimizer.learningRate may help.",
    )
