"""Real optimizer steps of a real model, published one by one beside tensors of every kind."""

from __future__ import annotations

from pathlib import Path

import torch

from rl_contracts.stores.objects import Objects
from rl_trainer.model import loading, weights
from tests.contract.policy_broadcast.world import Line, Subscriber, content, moved, strange
from tests.models.tiny_model import VOCABULARY, save_tiny


def follow_training(
    line: Line, folder: Path, objects: Objects, *, rate: float, steps: int
) -> list[int]:
    """Train, publish and stage every step; each must be the trainer's tensors byte for byte.

    Beside the model's there are an empty tensor, a scalar, NaN payloads, -0.0 and every dtype.

    Returns:
        How many of the model's tensors each step changed.
    """
    policy = loading.load(save_tiny(folder / "model"), precision="BF16", uri="s3://m/m")
    optimizer = torch.optim.AdamW(policy.parameters().values(), lr=rate)
    generator = torch.Generator().manual_seed(0)
    first = weights.snapshot(policy, precision="BF16")
    assert "lm_head.weight" not in first, "tied weights are published once"
    beside = {f"strange.{name}": tensor for name, tensor in strange().items()}
    subscriber = Subscriber.make(folder / "weights", objects, first | beside)
    staged = subscriber.stage(line.publish(first | beside))
    changes = []
    for step in range(steps):
        tokens = torch.randint(VOCABULARY, (4, 16), generator=generator)
        loss = policy.module(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        beside = moved(beside, seed=step)
        line.publish(weights.snapshot(policy, precision="BF16") | beside)
        staged = subscriber.stage(line.pointers[line.version], keep=[staged.folder])
        assert content(staged) == line.states[line.version]
        assert line.manifest(line.version).delta is not None
        old, new = (line.states.pop(line.version - 1), line.states[line.version])
        changes.append(sum(old[name] != new[name] for name in first))
    return changes
