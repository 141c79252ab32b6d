"""One update from a step's samples, and scoring without one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_contracts.spec.resources import RLJobSpec
from rl_trainer import optimizer as optimizers
from rl_trainer.errors import TrainingFailedError
from rl_trainer.losses import LOSSES
from rl_trainer.losses.records import LossInputs
from rl_trainer.model import Policy
from rl_trainer.packing import Packed, collate, pack
from rl_trainer.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How far the trainer's log-probabilities are from the samplers'."""

    tokens: int
    total: float
    """Sum of absolute differences."""
    largest: float

    @property
    def mean(self) -> float:
        """Mean absolute difference; 0 without tokens."""
        return self.total / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one update did."""

    loss: float
    gradient_norm: float
    """Before clipping."""
    learning_rate: float
    clip_fraction: float
    gap: Gap
    """Before the update."""
    seconds: float


class Learner:
    """The policy, its optimizer and its loss."""

    def __init__(
        self, policy: Policy, spec: RLJobSpec, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.policy = policy
        self._algorithm = spec.algorithm
        self._training = spec.training
        self._temperature = spec.agent.sampling.temperature
        self._loss = LOSSES[spec.algorithm.loss.kind]
        self._clock = clock
        self.parameters = policy.parameters()
        self.optimizer = optimizers.build(self.parameters, spec.training.optimizer)
        policy.module.train()

    def update(self, samples: Sequence[Sample], *, step: int) -> Update:
        """Make training step ``step`` (≥ 1): a deterministic function of weights and samples.

        The loss is the weighted sum over all generated tokens divided by their number in the whole
        step, so that neither packing nor the number of microbatches changes it.

        Raises:
            TrainingFailedError: loss or gradient is not finite; the weights are untouched.
        """
        started = self._clock()
        # Dropout and the like depend on seed and step alone: a replayed step repeats them.
        torch.manual_seed(self._training.seed * 1_000_003 + step)
        self.optimizer.zero_grad(set_to_none=True)
        count = sum(one.num_generated for one in samples)
        sums = torch.zeros(3, dtype=torch.float64)
        largest = 0.0
        for packed in self._microbatches(samples):
            partial, gap = self._accumulate(packed, count=count)
            sums += partial
            largest = max(largest, gap)
        loss = float(sums[0]) / count
        norm = float(
            torch.nn.utils.clip_grad_norm_(
                self.parameters.values(), self._training.optimizer.max_gradient_norm
            )
        )
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise _not_finite(step=step, loss=loss, norm=norm)
        rate = optimizers.learning_rate(self._training.optimizer, step=step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return Update(
            loss=loss,
            gradient_norm=norm,
            learning_rate=rate,
            clip_fraction=float(sums[1]) / count,
            gap=Gap(tokens=count, total=float(sums[2]), largest=largest),
            seconds=self._clock() - started,
        )

    def score(self, samples: Sequence[Sample], *, temperature: float) -> Gap:
        """Compare log-probabilities of the present weights with the samplers'."""
        self.policy.module.eval()
        total, largest, count = 0.0, 0.0, 0
        with torch.no_grad():
            for packed in self._microbatches(samples):
                logprobs = self.policy.token_logprobs(packed, temperature=temperature)
                gaps = (logprobs - packed.logprobs).abs()
                total += float(gaps.double().sum())
                # torch.max keeps a NaN, Python's max may lose it.
                largest = float(
                    torch.maximum(gaps.max(), torch.tensor(largest, device=gaps.device))
                )
                count += len(gaps)
        self.policy.module.train()
        return Gap(tokens=count, total=total, largest=largest)

    def _microbatches(self, samples: Sequence[Sample]) -> list[Packed]:
        lengths = [len(one) for one in samples]
        packed = pack(lengths, max_tokens=self._training.max_tokens_per_microbatch)
        return [collate(samples, rows).to(self.policy.device) for rows in packed]

    def _accumulate(self, packed: Packed, *, count: int) -> tuple[Tensor, float]:
        logprobs = self.policy.token_logprobs(packed, temperature=self._temperature)
        outputs = self._loss(
            LossInputs(
                logprobs=logprobs,
                sampler_logprobs=packed.logprobs,
                advantages=packed.advantages,
            ),
            self._algorithm.loss,
        )
        total = (outputs.losses * packed.weights).sum()
        (total / count).backward()  # type: ignore[no-untyped-call]
        gaps = (logprobs.detach() - packed.logprobs).abs()
        sums = torch.stack([total.detach(), outputs.clipped.sum(), gaps.sum()])
        return sums.double().cpu(), float(gaps.max())


def _not_finite(*, step: int, loss: float, norm: float) -> TrainingFailedError:
    return TrainingFailedError(
        reason="NotFinite",
        message=f"Step {step} was not made: loss {loss}, gradient norm {norm}. "
        "A lower spec.training.optimizer.learningRate may help.",
    )
