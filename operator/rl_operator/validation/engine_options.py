"""Typed options of an engine that its pod, its arguments or its model cannot honour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_contracts.capacity import engine_division
from rl_contracts.capacity.engine import options_of
from rl_contracts.capacity.shape import UnknownShapeError, shape_of
from rl_contracts.engine_server import NAMES
from rl_contracts.errors import Refusal
from rl_contracts.spec.engine import Engine
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerTemplate, gpus_of
from rl_operator.render.samplers.arguments import on_processor
from rl_operator.state import pool_ref

SIZES = ("tensor_parallel", "data_parallel", "expert_parallel")
MISLEADING = {
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "leaves the temperature out of the log-probabilities",
    "SGLANG_SIMULATE_ACC_LEN": "accepts guessed tokens that the policy did not sample",
}
"""Environment variables of SGLang with which tokens and log-probabilities are not the policy's."""


def of_template(at: str, template: SamplerTemplate) -> Iterator[Refusal]:
    """Refusals of a sampler template; ``at`` is its path."""
    engine, at = template.engine, f"{at}.engine"
    yield from _given_twice(at, engine)
    for index, variable in enumerate(engine.env):
        if variable.name in MISLEADING:
            yield _refusal(
                f"{at}.env[{index}].name",
                variable.name,
                f"With it SGLang {MISLEADING[variable.name]}.",
                "Remove it.",
            )
    if on_processor(engine.args):
        yield from _on_processor(at, engine)
    else:
        yield from _of_gpus(at, engine, asked=gpus_of(template.resources))


def of_colocated(spec: RLJobSpec) -> Iterator[Refusal]:
    """An engine that does not use the GPUs that it shares with the trainer."""
    engine = spec.samplers[0].template.engine
    if not on_processor(engine.args):
        at = f"{pool_ref.place(0, spec.samplers[0])}.engine"
        yield from _of_gpus(at, engine, asked=spec.trainer.processes)


def of_model(spec: RLJobSpec, model: Mapping[str, Any]) -> Refusal | None:
    """An option that the model does not suit; None too where its sizes are not known.

    Args:
        spec: the manifest.
        model: sizes in the model's config; empty where they are not known.
    """
    try:
        shape = shape_of(model)
    except UnknownShapeError:
        return None
    for index, group in enumerate(spec.samplers):
        at, engine = f"{pool_ref.place(index, group)}.engine", group.template.engine
        if refused := next(engine_division.refusals(at, engine, shape), None):
            return refused
    return None


def _given_twice(at: str, engine: Engine) -> Iterator[Refusal]:
    """Arguments that say what a field says; SGLang would take the last of both."""
    fields = type(engine).model_fields
    taken = {
        name: fields[option].alias
        for option, names in NAMES.items()
        if getattr(engine, option) != fields[option].default
        for name in names
    }
    for index, argument in enumerate(engine.args):
        name = argument.partition("=")[0]
        if not name.startswith("--"):
            continue
        field = next((taken[each] for each in taken if each.startswith(name)), None)
        if field is not None:
            yield Refusal(
                field=f"{at}.args[{index}]",
                value=argument[:200],
                reason="ArgumentReserved",
                message=f"engine.{field} is set and says the same.",
                remedy=f"Remove the argument, or engine.{field}.",
            )


def _on_processor(at: str, engine: Engine) -> Iterator[Refusal]:
    for option in SIZES:
        if (size := getattr(engine, option)) > 1:
            yield _refusal(
                f"{at}.{type(engine).model_fields[option].alias}",
                str(size),
                "The engine computes on a processor (--device cpu), as one process.",
                "Remove it.",
            )
    if engine.weight_precision is not None:
        yield _refusal(
            f"{at}.weightPrecision",
            engine.weight_precision,
            "SGLang computes in FP8 on GPUs alone, and the engine has --device cpu.",
            "Remove it.",
        )
    if engine.speculation is not None:
        yield _refusal(
            f"{at}.speculation",
            engine.speculation.kind,
            "On a processor (--device cpu) SGLang needs kernels that are not published, and would "
            "take the most probable token instead of sampling.",
            "Remove it.",
        )


def _of_gpus(at: str, engine: Engine, *, asked: int) -> Iterator[Refusal]:
    """GPUs that the pod asks for and the engine does not use, or the other way round.

    Devices of Dynamic Resource Allocation come through ``podTemplate``, where nobody counts them.
    """
    options = options_of(engine)
    if asked and options.gpus != asked:
        sizes = f"tensorParallel {options.tensor} × dataParallel {options.data}"
        if options.pipeline > 1:
            sizes += f" × --pp-size {options.pipeline}"
        yield _refusal(
            f"{at}.tensorParallel",
            str(options.tensor),
            f"The engine uses {sizes} = {options.gpus} GPUs, and its pod has {asked}.",
            f"Let the product be {asked}, or change the number of GPUs.",
        )


def _refusal(field: str, value: str, message: str, remedy: str) -> Refusal:
    return Refusal(
        field=field, value=value, reason="OptionUnusable", message=message, remedy=remedy
    )
