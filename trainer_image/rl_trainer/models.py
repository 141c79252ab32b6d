"""The models that take part in a step, and their passes over packed samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from rl_contracts.spec.algorithm import Algorithm
from rl_contracts.spec.training import Training
from rl_trainer import forward, objective
from rl_trainer.critic import Critic
from rl_trainer.logprobs import TokenStatistics
from rl_trainer.model import Policy
from rl_trainer.packing import Packed
from rl_trainer.reference import Reference
from rl_trainer.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The policy, what it is compared with, and how they are run."""

    policy: Policy
    reference: Reference | None
    critic: Critic | None
    algorithm: Algorithm
    training: Training
    temperature: float
    """Of the samplers; log-probabilities are those of the scaled distribution."""

    def microbatches(self, samples: Sequence[Sample]) -> list[Packed]:
        """Samples packed as the manifest allows, on the policy's device."""
        return forward.microbatches(
            samples,
            max_tokens=self.training.max_tokens_per_microbatch,
            max_sequences=self.training.max_sequences_per_microbatch,
            device=self.policy.device,
        )

    def statistics(self, packed: Packed) -> TokenStatistics:
        """What the algorithm needs of the policy's distributions, differentiable."""
        if not objective.needs_distributions(self.algorithm):
            return TokenStatistics(logprobs=self.logprobs(self.policy, packed))
        full = self.reference if objective.needs_full_divergence(self.algorithm) else None
        return self.policy.token_statistics(
            packed,
            temperature=self.temperature,
            reference=None if full is None else full.policy,
        )

    def logprobs(self, policy: Policy, packed: Packed) -> Tensor:
        """Of the generated tokens by the policy or the reference's, float32 ``[N]``."""
        return policy.token_logprobs(packed, temperature=self.temperature)

    def values(
        self, samples: Sequence[Sample], compute: Callable[[Packed], Tensor]
    ) -> list[Tensor]:
        """What ``compute`` gives for each sample's generated tokens, without gradient."""
        return forward.values(self.policy.module, self.microbatches(samples), compute)
