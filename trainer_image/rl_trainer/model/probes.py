"""Sequences for trying a model, and what it makes of them when it is called the ordinary way."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rl_trainer.algorithm.samples import Sample
from rl_trainer.model.policy import Policy

LENGTHS = (11, 7, 9)
HALF = (torch.bfloat16, torch.float16)


def samples(policy: Policy) -> list[Sample]:
    """Sequences of several lengths; for a model that sees images all but the first show some.

    The images are those of ``Vision.with_probes``.
    """
    made = [_probe(policy.vocabulary, length=length) for length in LENGTHS]
    if policy.vision is None:
        return made
    return [_seeing(policy, sample, number) for number, sample in enumerate(made)]


def ordinary(policy: Policy, sample: Sample) -> Tensor:
    """Log-probabilities of the generated tokens by a call of transformers as its docs show it."""
    tokens = sample.tokens.to(policy.device)
    given: dict[str, Tensor] = {}
    if sample.images and policy.vision is not None:
        kinds = torch.zeros_like(tokens, dtype=torch.int32)
        for image in sample.images:
            kinds[image.start : image.end] = 1
        patches = [policy.vision.patches(image) for image in sample.images]
        grids = [policy.vision.grid(image) for image in sample.images]
        given = {
            "mm_token_type_ids": kinds[None],
            "pixel_values": torch.cat(patches).to(policy.device),
            "image_grid_thw": torch.tensor(grids, device=policy.device),
        }
    logits: Tensor = policy.module(input_ids=tokens[None], use_cache=False, **given).logits[0]
    chosen = logits.float()[:-1].log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
    return chosen[sample.mask.to(policy.device)[1:]]


@contextlib.contextmanager
def in_float32(module: Any) -> Iterator[None]:
    """Have layers compute in float32 that keep their parameters in bfloat16 or float16."""
    held: dict[Any, dict[str, Any]] = {}

    def widen(layer: Any, _inputs: Any) -> None:
        held[layer] = dict(layer._parameters)
        layer._parameters.update(
            {
                name: each.float() if each is not None and each.dtype in HALF else each
                for name, each in held[layer].items()
            }
        )

    def restore(layer: Any, _inputs: Any, _outputs: Any) -> None:
        layer._parameters.update(held.pop(layer))

    with contextlib.ExitStack() as hooks:
        for layer in module.modules():
            if any(each.dtype in HALF for each in layer.parameters(recurse=False)):
                # Within FSDP2's hooks, which gather parameters and let them go.
                hooks.callback(layer.register_forward_pre_hook(widen).remove)
                hooks.callback(layer.register_forward_hook(restore, prepend=True).remove)
        yield


def _probe(vocabulary: int, *, length: int) -> Sample:
    tokens = (torch.arange(length) * 7919 + length) % vocabulary
    mask = torch.ones(length, dtype=torch.bool)
    mask[0] = False
    return Sample(
        tokens=tokens,
        mask=mask,
        logprobs=torch.zeros(length),
        temperature=1.0,
        policy_steps=torch.zeros(length, dtype=torch.int64),
    )


def _seeing(policy: Policy, sample: Sample, number: int) -> Sample:
    """The probe with ``number`` images in its beginning, none in the first."""
    image = policy.module.config.image_token_id
    sizes = [(2 + at, 3) for at in range(number)]
    tokens, spans = [sample.tokens[:1]], []
    for at, (height, width) in enumerate(sizes):
        assert policy.vision is not None
        spans.append(policy.vision.probe(at, height, width, start=sum(map(len, tokens))))
        tokens += [torch.full((height * width,), image), sample.tokens[1:2]]
    # A placeholder that stands for no image is a token like any other.
    rest = torch.where(
        sample.tokens[1:] == image, (image + 1) % policy.vocabulary, sample.tokens[1:]
    )
    whole = torch.cat([*tokens, rest])
    mask = torch.zeros(len(whole), dtype=torch.bool)
    mask[-len(rest) :] = True
    return dataclasses.replace(
        sample,
        tokens=whole,
        mask=mask,
        logprobs=torch.zeros(len(whole)),
        policy_steps=torch.zeros(len(whole), dtype=torch.int64),
        images=tuple(spans),
    )
