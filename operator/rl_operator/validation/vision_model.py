"""What does not work with the job's model because it sees images, or because it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_contracts.capacity.vision import vision_of
from rl_contracts.errors import Refusal
from rl_contracts.spec import vision_features
from rl_contracts.spec.resources import RLJobSpec


def refusals(spec: RLJobSpec, model: Mapping[str, Any]) -> Iterator[Refusal]:
    """As ``vision_features.refusals``; ``model`` has the sizes in the model's config, not empty."""
    yield from vision_features.refusals(
        spec, sees=vision_of(model) is not None, processes=spec.trainer.most_processes
    )
