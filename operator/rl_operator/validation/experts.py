"""Options for experts that the model does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_contracts.capacity import experts
from rl_contracts.capacity.shape import UnknownShapeError, shape_of
from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec


def of_model(spec: RLJobSpec, model: Mapping[str, Any]) -> Refusal | None:
    """An option that the model does not suit; None too where its sizes are not known.

    Args:
        spec: the manifest.
        model: sizes in the model's config; empty where they are not known.
    """
    try:
        return next(experts.refusals(shape_of(model), spec), None)
    except UnknownShapeError:
        return None
