"""The models that take part in a step, and their passes over packed samples."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import Training
from rl_trainer.algorithm import objective
from rl_trainer.algorithm.logprobs import TokenStatistics
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.distributed import rendezvous
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import forward, loading, lora
from rl_trainer.model.critic import Critic
from rl_trainer.model.experts import routers
from rl_trainer.model.parallel import sharding
from rl_trainer.model.parallel.on_mesh import divided
from rl_trainer.model.policy import Policy
from rl_trainer.model.reference import AdaptersOff, Reference


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
    world: World = ALONE

    def microbatches(self, samples: Sequence[Sample]) -> list[Packed]:
        """This rank's samples packed as the manifest allows, on the policy's device."""
        return forward.microbatches(samples, self.share(samples), device=self.policy.device)

    def share(self, samples: Sequence[Sample]) -> forward.Share:
        """What this rank computes of samples that all ranks compute together."""
        return forward.share(
            samples,
            max_tokens=self.training.microbatch_tokens,
            max_sequences=self.training.max_sequences_per_microbatch,
            work=self.policy.sequence_work,
            world=self.world,
        )

    def statistics(
        self, packed: Packed, *, states: Tensor | None = None, other: Tensor | None = None
    ) -> TokenStatistics:
        """What the algorithm needs of the policy's distributions, differentiable.

        Args:
            packed: the tokens.
            states: the policy's of these tokens, where they are known.
            other: the full reference's, where they are known.
        """
        if not objective.needs_distributions(self.algorithm):
            return self.policy.measured_logprobs(
                packed, temperature=self.temperature, states=states
            )
        full, known = self.full_reference, other
        if full is not None and known is None:
            known = self.reference_states(packed)
        return self.policy.token_statistics(
            packed,
            temperature=self.temperature,
            states=states,
            reference=None if full is None or known is None else (full, known),
            trains_entropy=self.algorithm.entropy_coefficient > 0,
        )

    @property
    def full_reference(self) -> Policy | None:
        """The reference where whole distributions are compared."""
        if self.reference is None or not objective.needs_full_divergence(self.algorithm):
            return None
        return self.reference.policy

    def reference_states(self, packed: Packed) -> Tensor | None:
        """The full reference's states of the generated tokens, without gradient."""
        if self.full_reference is None:
            return None
        with torch.no_grad():
            return self.full_reference.states(packed)

    @property
    def part_tokens(self) -> int:
        """Tokens whose logits are held at a time with what is computed of them."""
        if objective.needs_distributions(self.algorithm):
            return self.policy.chunk_tokens_of_statistics
        return self.policy.chunk_tokens

    def logprobs(self, policy: Policy, packed: Packed) -> Tensor:
        """Of the generated tokens by the policy or the reference's, float32 ``[N]``."""
        return policy.token_logprobs(packed, temperature=self.temperature)

    def values(
        self, samples: Sequence[Sample], compute: Callable[[Packed], Tensor]
    ) -> list[Tensor]:
        """What ``compute`` gives for each sample's generated tokens, without gradient."""
        computed = forward.values(
            self.policy.module, self.microbatches(samples), compute, world=self.world
        )
        self.rest()
        return computed

    def rest(self) -> None:
        """Let go of gathered parameters; before any of them is written to."""
        sharding.rest(self.policy.module)
        if self.reference is not None:
            sharding.rest(self.reference.policy.module)


def build(
    policy: Policy,
    spec: RLJobSpec,
    *,
    critic: Policy | None,
    teacher: Policy | None,
    adapter: AdapterEntry | None,
    world: World,
) -> Models:
    """All models of a step. The policy is divided last: critic and reference may copy it before.

    Args:
        policy: whole on every rank, or its weights not read yet.
        spec: the manifest.
        critic: the model that the critic starts from; None: a copy of the policy.
        teacher: the reference of a distillation; None: the policy as it is now.
        adapter: where adapters are trained instead of all weights: whose.
        world: the ranks among which the models are divided.
    """
    low_rank = spec.training.lora
    value_critic = _critic(critic, policy, spec, world)
    compared = spec.algorithm.divergence is not None
    reference: Reference | None = None
    if compared and (teacher is not None or low_rank is None):
        reference = _reference(teacher or policy, spec.training, world)
        _check(teacher, reference.policy, world)
    if low_rank is not None:
        assert adapter is not None
        policy = lora.adapted(policy, low_rank, adapter, seed=spec.training.seed)
    replays = spec.algorithm.experts.routing == "Replay"
    policy = replace(policy, routers=routers.of(policy.module, replays=replays))
    before, policy = policy, divided(policy, world)
    if before.stored is not None and low_rank is not None:
        lora.begin(policy.module, seed=spec.training.seed)
    _check(before, policy, world)
    if compared and reference is None:
        reference = AdaptersOff(policy)
    return Models(
        policy=policy,
        reference=reference,
        critic=value_critic,
        algorithm=spec.algorithm,
        training=spec.training,
        temperature=spec.agent.sampling.temperature,
        world=world,
    )


def _reference(copied: Policy, training: Training, world: World) -> Reference:
    """The reference; one that lies in host memory is divided, if only into one part."""
    if not training.offload_reference:
        return Reference(copied, world=world)
    return Reference(replace(copied, offload_parameters=True), world=rendezvous.with_mesh(world))


def _critic(model: Policy | None, policy: Policy, spec: RLJobSpec, world: World) -> Critic | None:
    section = spec.algorithm.critic
    if section is None:
        return None
    assert model or not policy.originals, "refused: no critic is quantized"
    if model is not None and model.stored is not None:
        _check_copy(model, world)
        gc.collect()  # FSDP2's hooks refer to the copy in circles: else it would stay for a while
    return Critic(model or policy, section, spec.training, shared=model is None, world=world)


def _check_copy(model: Policy, world: World) -> None:
    """Prove of a copy that a critic's model can be trained: a critic has no output layer."""
    copied = replace(model, module=copy.deepcopy(model.module))
    _check(model, divided(copied, world), world)


def _check(before: Policy | None, filled: Policy, world: World) -> None:
    """Prove that a model can be trained, if it could not be before its weights were read."""
    if before is not None and before.stored is not None:
        loading.check(filled, uri=before.stored.uri, field=before.stored.field, world=world)
