"""Real optimizer steps of a real model, published one by one."""

from __future__ import annotations

from pathlib import Path

import torch

from rl_contracts.stores.objects import Objects
from rl_trainer import model, weights
from tests.contract.policy_broadcast.world import Line, Subscriber, content
from tests.tiny_model import VOCABULARY, save_tiny


def follow_training(
    line: Line, folder: Path, objects: Objects, *, rate: float, steps: int
) -> list[float]:
    """Train, publish and stage every step; each must be the trainer's tensors byte for byte.

    Returns:
        Each delta's size as a share of all weights.
    """
    policy = model.load(save_tiny(folder / "model"), precision="BF16", uri="s3://m/m")
    optimizer = torch.optim.AdamW(policy.parameters().values(), lr=rate)
    generator = torch.Generator().manual_seed(0)
    first = weights.snapshot(policy, precision="BF16")
    assert "lm_head.weight" not in first, "tied weights are published once"
    subscriber = Subscriber.make(folder / "weights", objects, first)
    staged = subscriber.stage(line.publish(first))
    fractions = []
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (4, 16), generator=generator)
        loss = policy.module(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        line.publish(weights.snapshot(policy, precision="BF16"))
        staged = subscriber.stage(line.pointers[line.version], keep=[staged.folder])
        assert content(staged) == line.states[line.version]
        delta = line.manifest(line.version).delta
        assert delta is not None
        fractions.append(delta.size_bytes / line.manifest(1).full_bytes)
    return fractions
