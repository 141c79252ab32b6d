"""How a manifest's model is trained, as the memory model asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape
from rl_contracts.spec.algorithm.algorithm import CRITIC_FIELD, TEACHER_FIELD
from rl_contracts.spec.parallelism import mesh_sizes
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import AUTO

NONE: Mapping[str, Shape] = {}


def setup_of(
    spec: RLJobSpec,
    *,
    cuda: bool,
    longest: int | None = None,
    ranks: int | None = None,
    others: Mapping[str, Shape] = NONE,
) -> Setup:
    """The setup of a manifest.

    Args:
        spec: the manifest.
        cuda: it is trained on GPUs.
        longest: tokens of the longest sequence, where the model limits it below the manifest's.
        ranks: instead of the manifest's replicas and processes; an elastic trainer's are the
            fewest that an attempt may have.
        others: the shapes that are known of ``spec.algorithm.other_models``, by the same fields.
            Models of other fields are not counted, and the setup names these.

    Raises:
        RefusedError: these processes do not make the manifest's mesh.
    """
    training, algorithm = spec.training, spec.algorithm
    critic, lora, elastic = algorithm.critic, training.lora, spec.trainer.elastic
    least = spec.trainer.replicas if elastic is None else elastic.min_replicas
    context = spec.agent.sampling.max_context_tokens
    most, tokens = min(context, longest or context), training.microbatch_tokens
    if training.max_tokens_per_microbatch == AUTO:
        tokens = max(tokens, most)
    uncounted = tuple(field for field in algorithm.other_models if field not in others)
    divergence = algorithm.divergence
    reference = divergence is not None and (lora is None or algorithm.distils)
    full = divergence is not None and "Full" in divergence.estimators
    return Setup(
        precision=training.precision,
        optimizer=training.optimizer.kind,
        adapter_rank=0 if lora is None else lora.rank,
        targets=() if lora is None else tuple(lora.targets),
        adapt_experts=lora is not None and lora.experts == "Adapted",
        quantization=None if lora is None else lora.quantization,
        checkpointing=(
            cuda if training.gradient_checkpointing is None else training.gradient_checkpointing
        ),
        offload_activations=training.offload_activations,
        offload_optimizer=training.offload_optimizer,
        offload_parameters=training.offload_parameters,
        offload_reference=training.offload_reference,
        reference=reference and TEACHER_FIELD not in uncounted,
        reference_shape=others.get(TEACHER_FIELD),
        critic=critic is not None and CRITIC_FIELD not in uncounted,
        critic_shape=others.get(CRITIC_FIELD),
        critic_tokens=None if critic is None else critic.max_tokens_per_microbatch,
        uncounted=uncounted,
        full_divergence=full and TEACHER_FIELD not in uncounted,
        distributions=bool(algorithm.entropy_coefficient) + full,
        train_vision=training.vision == "Trained",
        microbatch_tokens=tokens,
        longest_tokens=min(most, tokens),
        mesh=mesh_sizes(
            spec.trainer.parallelism,
            ranks or least * spec.trainer.processes,
        ),
        replicas_field="trainer.replicas" if elastic is None else "trainer.elastic.minReplicas",
        cuda=cuda,
        turns=spec.colocated,
    )
