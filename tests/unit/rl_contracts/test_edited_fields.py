"""The tables of edits that are made on a cluster have each field that a spec has."""

from __future__ import annotations

from pydantic import BaseModel

from rl_contracts.spec.engine import Engine
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.resources import FIXED_ONCE_STARTED, FIXED_UNLESS_SUSPENDED, RLJobSpec
from rl_contracts.spec.workers import Disruption, Drain, Rollout, SamplerTemplate
from tests.chaos.operator_cluster.edits import (
    FIXED,
    FOR_EVER,
    LIFECYCLE,
    SECTIONS,
    TEMPLATE,
    WHILE_SUSPENDED,
)

ELSEWHERE = {
    "autoscaling",
    "maxConcurrentGroups",
    "disruption.pdb",  # tests of their own
    "engine.kind",  # there is one
    # These need GPUs, another algorithm or a longer model than the cluster's job has:
    "engine.tensorParallel",
    "engine.dataParallel",
    "engine.expertParallel",
    "engine.contextTokens",
    "engine.weightPrecision",
    "engine.cachePrecision",
    "engine.speculation",
}
LIMITS = {"failurePolicy"}
"""What an edit of it does is shown with those of ``backoffLimit``."""
SPLIT: dict[str, type[BaseModel]] = {
    "engine": Engine,
    "drain": Drain,
    "disruption": Disruption,
    "rollout": Rollout,
}
TOGETHER = {"rollout.maxUnavailable", "rollout.maxSurge"}


def fields(model: type[BaseModel]) -> set[str]:
    """Names of a section's fields as a manifest has them."""
    return {field.alias or name for name, field in model.model_fields.items()}


def test_each_section_is_edited_or_refused() -> None:
    assert set(FIXED) == set(FIXED_ONCE_STARTED)
    assert set(WHILE_SUSPENDED) == set(FIXED_UNLESS_SUSPENDED)
    assert fields(RLJobSpec) == {*FIXED, *WHILE_SUSPENDED, *FOR_EVER, *SECTIONS}


def test_each_field_of_lifecycle_is_edited() -> None:
    assert fields(Lifecycle) == {*LIFECYCLE, *LIMITS}


def test_each_field_of_a_template_is_edited() -> None:
    whole = fields(SamplerTemplate) - set(SPLIT)
    parts = {f"{name}.{field}" for name, model in SPLIT.items() for field in fields(model)}
    assert (whole | parts) - TOGETHER - ELSEWHERE == set(TEMPLATE) - {"rollout"}
