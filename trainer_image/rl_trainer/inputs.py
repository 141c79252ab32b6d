"""The model that the manifest names, or the refusal that names the field."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from transformers import AutoTokenizer

from rl_contracts import adapters
from rl_contracts.capacity import engine_division, experts
from rl_contracts.capacity.context import context_refusal
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.hub.model_import import TOKENIZER_FIELD
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.spec.algorithm.algorithm import CRITIC_FIELD, TEACHER_FIELD
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.groups import Limits
from rl_trainer.checkpoint.base_model import check_tokenizer
from rl_trainer.distributed import rendezvous
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.downloads import BASE, CRITIC, FOLDERS, TEACHER
from rl_trainer.model import loading, lora, memory, microbatch, vision
from rl_trainer.model.experts import routers
from rl_trainer.model.files import unusable
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy

CREDITED = ("RL", "Offline")
"""Objectives under which an estimator gives advantages."""


def learner(
    spec: RLJobSpec,
    *,
    folder: Path,
    world: World = ALONE,
    clock: Callable[[], float] = time.monotonic,
    images: vision.StoredImages | None = None,
) -> tuple[Learner, Limits]:
    """Load the manifest's models; a collective call.

    Args:
        spec: the manifest.
        folder: where ``downloads.fetch`` has put the models, on every rank.
        world: all ranks.
        clock: monotonic seconds.
        images: fetches stored images.

    Raises:
        RefusedError: one of them cannot be used.
        OutOfMemoryError: the GPU had no memory left.
    """
    if spec.training.offload_parameters:
        world = rendezvous.with_mesh(world)
    own = folder / BASE
    others = {
        field: known
        for field in spec.algorithm.other_models
        if (known := microbatch.shape_in(folder / FOLDERS[field])) is not None
    }
    spec = microbatch.resolved(spec, own, device=loading.device(), world=world, others=others)
    doing, shape = "the loading of the models", microbatch.shape_in(own)
    for refusal in [] if shape is None else experts.refusals(shape, spec):
        raise RefusedError(refusal)
    for refusal in [] if shape is None else engine_division.of_groups(spec, shape):
        raise RefusedError(refusal)
    with memory.explaining(spec, shape, doing=doing, ranks=world.size, others=others):
        return _loaded(spec, folder, world=world, clock=clock, images=images)


def _loaded(
    spec: RLJobSpec,
    folder: Path,
    *,
    world: World,
    clock: Callable[[], float],
    images: vision.StoredImages | None,
) -> tuple[Learner, Limits]:
    own, uri = folder / BASE, spec.model.uri
    low_rank = spec.training.lora
    policy = loading.load(
        own,
        precision=spec.training.precision,
        uri=uri,
        recompute=bool(spec.training.gradient_checkpointing),
        offload=spec.training.offload_activations,
        offload_parameters=spec.training.offload_parameters,
        divided=world.mesh is not None,
        quantize=None if low_rank is None else low_rank.quantization,
        images=images,
        train_vision=spec.training.vision == "Trained",
    )
    known = limits(policy, spec)
    _check_size(own, spec, vocabulary=known.vocabulary)
    adapter = adapter_of(own, policy, spec)
    divided = world.mesh is not None
    critic = critic_model(spec, folder, limits=known, divided=divided)
    teacher = teacher_model(spec, folder, limits=known, divided=divided)
    learner = Learner(
        policy, spec, critic=critic, teacher=teacher, adapter=adapter, world=world, clock=clock
    )
    return learner, known


def adapter_of(base: Path, policy: Policy, spec: RLJobSpec) -> AdapterEntry | None:
    """The manifest entry of the trained adapter; None where all weights are trained.

    Args:
        base: folder of the model as it came.
        policy: the same, loaded.
        spec: the manifest.

    Raises:
        RefusedError: the model cannot have the adapters that the manifest asks for.
    """
    section = spec.training.lora
    if section is None:
        return None
    lora.check_files(policy.module, set(adapters.model_tensors(base)), section)
    return adapters.adapter_entry(base, uri=spec.model.uri, section=section)


def _check_size(base: Path, spec: RLJobSpec, *, vocabulary: int) -> None:
    """A tokenizer from elsewhere must not make ids that the model has no embedding of."""
    uri = spec.model.tokenizer_uri
    if uri is None:
        return
    size = len(AutoTokenizer.from_pretrained(base, local_files_only=True))
    if size > vocabulary:
        raise unusable.refused(
            uri,
            f"It has {size} tokens, the model {vocabulary}.",
            field=TOKENIZER_FIELD,
            remedy="Name the tokenizer of a model with the same tokens, or remove it.",
        )


def limits(policy: Policy, spec: RLJobSpec) -> Limits:
    """What a rollout must fit.

    Raises:
        RefusedError: the longest sequence that samplers may produce fits no microbatch, or the
            model was not made for it.
    """
    too_long = context_refusal(spec, policy.max_positions)
    if too_long is not None:
        raise RefusedError(too_long)
    field, budget = "spec.training.maxTokensPerMicrobatch", spec.training.microbatch_tokens
    critic = spec.algorithm.critic
    if critic is not None and (critic.max_tokens_per_microbatch or budget) < budget:
        field = "spec.algorithm.critic.maxTokensPerMicrobatch"
        budget = critic.max_tokens_per_microbatch or budget
    longest = spec.agent.sampling.max_context_tokens
    if policy.max_positions is not None:
        longest = min(longest, policy.max_positions)
    if longest > budget:
        raise RefusedError(
            Refusal(
                field=field,
                value=str(budget),
                reason="MicrobatchTooSmall",
                message=f"Sequences may have {longest} tokens, which fit no microbatch.",
                remedy=f"Set it to at least {longest}, or lower "
                "spec.agent.sampling.maxContextTokens.",
            )
        )
    replays = spec.algorithm.experts.routing == "Replay"
    return Limits(
        vocabulary=policy.vocabulary,
        max_tokens=longest,
        placeholders=Placeholders.of(policy.module.config.to_dict()),
        replayed=routers.replayed(policy.module) if replays else None,
        temperature=spec.agent.sampling.temperature,
        estimator=spec.algorithm.estimator if spec.algorithm.objective in CREDITED else None,
    )


def critic_model(
    spec: RLJobSpec, folder: Path, *, limits: Limits, divided: bool = False
) -> Policy | None:
    """The model that the critic starts from; None where that is the policy's own.

    Args:
        spec: the manifest.
        folder: that holds the models.
        limits: of the policy.
        divided: processes will divide it.

    Raises:
        RefusedError: it cannot be used, its tokens or their ids are not the policy's, or the
            policy's sequences are too long for it.
    """
    critic = spec.algorithm.critic
    if critic is None or critic.model is None:
        return None
    uri, field, own = critic.model.uri, CRITIC_FIELD, folder / CRITIC
    model = _other(spec, own, uri=uri, field=field, limits=limits, divided=divided)
    vocabulary = model.vocabulary
    if vocabulary < limits.vocabulary:
        raise unusable.refused(
            uri,
            f"It knows {vocabulary} tokens, the policy {limits.vocabulary}: they must be the same.",
            field=field,
        )
    _check_ids(own, folder / BASE, uri, field=field)
    return model


def teacher_model(
    spec: RLJobSpec, folder: Path, *, limits: Limits, divided: bool = False
) -> Policy | None:
    """The model that Distillation learns from; None under other objectives.

    Args:
        spec: the manifest.
        folder: that holds the models.
        limits: of the policy.
        divided: processes will divide it.

    Raises:
        RefusedError: it cannot be used, or its tokens or their ids are not the policy's.
    """
    uri = spec.algorithm.teacher
    if not spec.algorithm.distils or uri is None:
        return None
    field, own = TEACHER_FIELD, folder / TEACHER
    divided = divided or spec.training.offload_reference
    model = _other(spec, own, uri=uri, field=field, limits=limits, divided=divided)
    if model.vocabulary != limits.vocabulary:
        raise unusable.refused(
            uri,
            f"It has {model.vocabulary} tokens, the policy {limits.vocabulary}: "
            "their distributions cannot be compared.",
            field=field,
        )
    _check_ids(own, folder / BASE, uri, field=field)
    return model


def _check_ids(other: Path, own: Path, uri: str, *, field: str) -> None:
    """A model that reads the policy's tokens must mean the same by their ids."""
    check_tokenizer(other, uri, field=field)
    theirs, ours = (
        AutoTokenizer.from_pretrained(folder, local_files_only=True).get_vocab()
        for folder in (other, own)
    )
    different = sorted(name for name, _ in set(theirs.items()) ^ set(ours.items()))
    if different:
        message = f"Its tokenizer has other ids, e.g. of {different[0][:100]!r}."
        raise unusable.refused(uri, message, field=field)


def _other(
    spec: RLJobSpec,
    folder: Path,
    *,
    uri: str,
    field: str,
    limits: Limits,
    divided: bool,
) -> Policy:
    """A model beside the policy, which must take sequences as long."""
    model = loading.load(
        folder,
        precision=spec.training.precision,
        uri=uri,
        field=field,
        recompute=bool(spec.training.gradient_checkpointing),
        offload=spec.training.offload_activations,
        offload_parameters=spec.training.offload_parameters,
        divided=divided,
    )
    longest = model.max_positions
    if longest is not None and longest < limits.max_tokens:
        raise unusable.refused(
            uri,
            f"It takes {longest} tokens, and sequences may have {limits.max_tokens}.",
            field=field,
        )
    return model
