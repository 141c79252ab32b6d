"""The page of capacities is computed, and its manifests fit the GPUs that it names."""

from __future__ import annotations

from typing import Any

import pytest

from rl_console.manifests.checks import problems
from rl_contracts.capacity.context import context_refusal
from rl_contracts.capacity.engine import engine_memory
from rl_contracts.spec.resources import RLJobSpec
from rl_operator.validation import device_memory, experts, parallelism
from rl_operator.validation.refusals import of_spec
from tests.samples.manifests import EXAMPLES
from tests.unit.docs.capacity_page import FOLDER, PAGE, TABLE, TABLES, TRAINERS, WORKED, Worked
from tests.unit.docs.capacity_page import rendered as rendered_page

EVERY = pytest.mark.parametrize("worked", WORKED, ids=lambda worked: worked.name)
PUBLISHED = {
    "qwen3-8b": 8.2,
    "qwen3-32b": 32.8,
    "llama-3.3-70b": 70.6,
    "gpt-oss-120b": 116.8,
    "qwen3-235b-a22b": 235.1,
}
"""Billions of parameters that the models' publishers name."""


def judged(worked: Worked, **memory: Any) -> device_memory.DeviceMemory:
    """What the operator says of the memory, some of ``training.memory`` replaced."""
    training = worked.manifest["spec"]["training"]
    training = {**training, "memory": training["memory"] | memory}
    spec = RLJobSpec.model_validate(worked.manifest["spec"] | {"training": training})
    judgement = device_memory.of_job(spec, worked.config, {}, labelled_gib=None)
    assert judgement is not None
    return judgement


def test_the_tables_are_those_of_the_formulas() -> None:
    written = PAGE.read_text()
    assert {match[2] for match in TABLE.finditer(written)} == set(TABLES)
    assert rendered_page(written) == written, "make generate"


def test_every_manifest_of_the_folder_is_on_the_page_and_among_the_examples() -> None:
    files = {path for path in FOLDER.iterdir() if path.suffix == ".yaml"}
    assert files == {FOLDER / f"{worked.name}.yaml" for worked in WORKED}
    assert files <= set(EXAMPLES)


@EVERY
def test_the_models_have_as_many_parameters_as_their_publishers_say(worked: Worked) -> None:
    assert worked.shape.parameters / 1e9 == pytest.approx(PUBLISHED[worked.name], abs=0.06)


@EVERY
def test_models_and_rules_accept_the_manifests(worked: Worked) -> None:
    assert problems(worked.manifest) == []


@EVERY
def test_the_operator_refuses_nothing_of_the_manifests(worked: Worked) -> None:
    spec = worked.spec
    assert list(of_spec(spec)) == []
    assert parallelism.of_model(spec, worked.config) is None
    assert experts.of_model(spec, worked.config) is None
    assert context_refusal(spec, worked.shape.max_positions) is None


@EVERY
def test_training_fits_the_gpus_and_not_half_of_their_memory(worked: Worked) -> None:
    assert judged(worked).condition.status == "True"
    half = judged(worked, deviceGiB=worked.device_gib / 2)
    assert half.condition.status == "False"


@EVERY
def test_engines_hold_a_whole_group_of_episodes(worked: Worked) -> None:
    (group,) = worked.spec.samplers
    held = engine_memory(worked.shape, worked.spec, group.template, size_gib=worked.device_gib)
    limits = group.template.resources.limits
    assert held.gpus == int(str(limits["nvidia.com/gpu"]))
    longest = worked.spec.agent.sampling.max_context_tokens
    assert held.tokens >= worked.spec.algorithm.group_size * longest


@pytest.mark.parametrize(
    ("name", "replicas", "gpus", "sizes", "training"),
    TRAINERS,
    ids=lambda part: str(part) if not isinstance(part, dict) else "-".join(map(str, part)),
)
def test_the_trainers_of_the_page_are_accepted(
    name: str, replicas: int, gpus: int, sizes: dict[str, int], training: dict[str, Any]
) -> None:
    worked = Worked(name)
    spec = worked.changed(replicas=replicas, gpus=gpus, parallelism=sizes, training=training)
    assert list(of_spec(spec)) == []
    assert parallelism.of_model(spec, worked.config) is None
