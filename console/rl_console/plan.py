"""``kubectl rl plan``: what a manifest needs of GPUs and hosts, by formula, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rl_console.errors import DoesNotFitError, PlanError
from rl_console.manifests.checks import problems
from rl_console.manifests.files import name_of, read, text_of
from rl_contracts.capacity import engine_division, mesh
from rl_contracts.capacity.choice import choose_microbatch
from rl_contracts.capacity.engine import Options, engine_memory, options_of
from rl_contracts.capacity.fit import STANDALONE
from rl_contracts.capacity.host import host_memory
from rl_contracts.capacity.of_spec import setup_of
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import FAMILIES, SEEING, Shape, UnknownShapeError, shape_of
from rl_contracts.capacity.text import arithmetic, host_arithmetic, not_counted, remedies
from rl_contracts.capacity.training import CUDA_BYTES, GIB, SPARE_SHARE, memory
from rl_contracts.errors import RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import AUTO, MOST_AUTO_TOKENS
from rl_contracts.spec.workers import SamplerGroup, gpus_of

T = TypeVar("T")
Lines = Generator[str, None, bool]
"""Lines of text; returns whether what they describe can fit."""


def plan(manifest: Path, config: Path, *, device_gib: float) -> Iterator[str]:
    """Lines about each RLJob of a manifest.

    Args:
        manifest: YAML or JSON of one or more objects, a folder of such files, or ``-``.
        config: the model's ``config.json``.
        device_gib: memory of one GPU in GiB.

    Raises:
        UsageError: one of the files cannot be used.
        DoesNotFitError: after all lines, for the jobs that cannot fit.
    """
    shape = _read(config, lambda text: shape_of(json.loads(text)))
    documents = [each.manifest for each in read([manifest])]
    jobs = [each for each in documents if each.get("kind") == "RLJob"]
    if not jobs:
        raise PlanError(f"{manifest} holds no RLJob.")
    _check_family(config, shape)
    yield f"model: {shape.family}, {shape.parameters / 1e9:.2f} billion parameters"
    too_large = []
    for job in jobs:
        fits = yield from _job(job, shape, device_gib=device_gib)
        if not fits:
            too_large.append(name_of(job))
    if too_large:
        raise DoesNotFitError(too_large, device_gib=device_gib)


def _read(path: Path, parse: Callable[[str], T]) -> T:
    text = text_of(path)
    try:
        return parse(text)
    except (ValueError, AttributeError, UnknownShapeError) as error:
        raise PlanError(f"{path} cannot be used: {error}") from error


def _check_family(config: Path, shape: Shape) -> None:
    if shape.family not in FAMILIES:
        seeing = (name for name in SEEING if not name.endswith("_text"))
        raise PlanError(
            f"{config}: model_type is {shape.family!r}, and the formula is not known to hold for "
            f"it. It holds for {', '.join((*FAMILIES, *seeing))}"
        )


def _setup(name: str, spec: RLJobSpec, shape: Shape) -> Setup:
    """How the job trains.

    Raises:
        PlanError: its processes do not make its mesh, or the mesh does not divide the model.
    """
    try:
        setup = setup_of(spec, cuda=True, longest=shape.max_positions)
        for refusal in mesh.refusals(shape, setup.mesh, quantization=setup.quantization):
            raise RefusedError(refusal)
    except RefusedError as error:
        raise PlanError(f"{name}: {error}") from error
    return setup


def _job(job: Mapping[str, Any], shape: Shape, *, device_gib: float) -> Lines:
    name = name_of(job)
    refused = problems(job)
    if refused:
        more = f" ({len(refused) - 1} more: `kubectl rl validate`)" if len(refused) > 1 else ""
        raise PlanError(f"{name}: {refused[0]}{more}")
    spec = RLJobSpec.model_validate(job["spec"])
    setup = _setup(name, spec, shape)
    if spec.training.max_tokens_per_microbatch == AUTO:
        size = device_gib * GIB
        choice = choose_microbatch(shape, setup, device_bytes=size, most=MOST_AUTO_TOKENS)
        setup, how = replace(setup, microbatch_tokens=choice.tokens), " (Auto)"
    else:
        how = ""
    needed = memory(shape, setup)
    yield (
        f"{name}: {setup.mesh.processes} processes ({setup.mesh}), microbatches of "
        f"{setup.microbatch_tokens} tokens{how}"
    )
    yield f"  each GPU needs {arithmetic(needed)} of {device_gib:g} GiB"
    trained = spec.algorithm.objective not in STANDALONE
    fits = not trained or needed.fixed <= device_gib * GIB
    if not trained:
        yield "  nothing is trained: the trainer needs less than that"
    elif not fits:
        changes = remedies(shape, setup, too_large=True)
        yield f"  it cannot fit: weights, gradients and moments alone exceed it. {changes}"
    elif needed.total > device_gib * GIB * (1 - SPARE_SHARE):
        yield f"  it may not fit: {SPARE_SHARE:.0%} should stay free. {remedies(shape, setup)}"
    elif not setup.uncounted:
        yield "  it fits by formula"
    if setup.uncounted:
        yield f"  {not_counted(setup)}"
    host = host_memory(shape, setup, processes=spec.trainer.processes)
    yield f"  of its host the first pod needs {host_arithmetic(host)}"
    for group in spec.samplers:
        holds = yield from _engine(spec, group, shape, device_gib=device_gib)
        fits = fits and holds
        if spec.colocated:
            yield from _turns(spec, group, shape, device_gib=device_gib)
    yield f"  it makes {', '.join(_made(name, spec))}; {_gpus(spec)} GPUs in all"
    return fits


def _made(name: str, spec: RLJobSpec) -> Iterator[str]:
    """The pods of a job; those of programs and environments come beside them."""
    elastic = spec.trainer.elastic
    bounds = f" ({elastic.min_replicas} to {elastic.max_replicas})" if elastic else ""
    trainers = spec.trainer.replicas
    yield f"{trainers}{bounds} trainer {_pods(trainers)} of {spec.trainer.gpus} GPUs"
    for group in spec.samplers:
        if group.pool_ref is not None:
            yield f"no pod of group {group.name}, which is of SamplerPool {group.pool_ref.name}"
        elif spec.colocated:
            yield f"engines of group {group.name} in the trainer's pods"
        else:
            scaling = group.template.autoscaling
            most = f" to {scaling.max_replicas}" if scaling.max_replicas else ""
            pods = _pods(scaling.max_replicas or scaling.min_replicas)
            each = gpus_of(group.template.resources)
            number = f"{scaling.min_replicas}{most} {pods} of {each} GPUs"
            yield f"{number} in SamplerPool {name}-{group.name}"


def _pods(number: int) -> str:
    return "pod" if number == 1 else "pods"


def _gpus(spec: RLJobSpec) -> int:
    """GPUs of the pods that a job begins with."""
    own = [] if spec.colocated else [each for each in spec.samplers if each.pool_ref is None]
    return spec.trainer.replicas * spec.trainer.gpus + sum(
        each.template.autoscaling.min_replicas * gpus_of(each.template.resources) for each in own
    )


def _turns(
    spec: RLJobSpec, group: SamplerGroup, shape: Shape, *, device_gib: float
) -> Iterator[str]:
    """A line about the engine's turn on GPUs that it shares with the trainer."""
    held = engine_memory(shape, spec, group.template, size_gib=device_gib)
    left = (1 - held.fraction) * device_gib - held.table / GIB
    contexts = 2 * CUDA_BYTES / GIB
    verdict = "enough by formula"
    if left < contexts:
        verdict = "too little: lower engine.memoryFraction"
    yield (
        f"  turns: in the engine's, {left:.2f} GiB are left for {contexts:g} GiB of contexts, "
        f"{verdict}; the trainer's sum above has what the engine keeps"
    )


def _engine(spec: RLJobSpec, group: SamplerGroup, shape: Shape, *, device_gib: float) -> Lines:
    """Lines about the engines of a group; nothing of a shared pool, whose manifest is another."""
    if group.pool_ref is not None:
        return True
    engine = group.template.engine
    for refusal in engine_division.refusals(f"samplers {group.name}: engine", engine, shape):
        raise PlanError(str(RefusedError(refusal)))
    held = engine_memory(shape, spec, group.template, size_gib=device_gib)
    options = options_of(engine)
    context = spec.agent.sampling.max_context_tokens
    adapters = ""
    if held.adapters:
        adapters = f"{options.slots} slots of adapters {held.adapters / GIB:.2f} + "
    yield (
        f"  samplers {group.name}: each of an engine's {held.gpus} GPUs ({_sizes(options)}) holds "
        f"weights {held.weights / GIB:.2f} + {adapters}cache {max(0.0, held.cache) / GIB:.2f} GiB, "
        f"{held.fraction:.0%} of {device_gib:g} GiB, + {held.table / GIB:.2f} GiB for the engine's "
        "table of requests"
    )
    if held.tokens < context:
        yield (
            f"  the cache cannot hold one episode of {context} tokens: raise "
            "engine.tensorParallel or engine.memoryFraction, set engine.cachePrecision, or lower "
            "agent.sampling.maxContextTokens"
        )
        return False
    episodes = group.template.max_concurrent_groups * spec.algorithm.group_size
    yield (
        f"  the cache holds {held.tokens} tokens, {held.tokens // context} whole episodes of "
        f"{context}; a pod works on at most {episodes} at a time, the others wait in the engine"
    )
    if engine.speculation is not None:
        yield (
            f"  speculation: at most {options.requests} requests run at a time (48 unless "
            f"--max-running-requests says otherwise), each with {engine.speculation.draft_tokens} "
            "guessed tokens a pass"
        )
    return True


def _sizes(options: Options) -> str:
    """The engine's parallel sizes, e.g. ``tensor 4 × data 2, expert 2``."""
    sizes = {"tensor": options.tensor, "pipeline": options.pipeline, "data": options.data}
    factors = [f"{name} {size}" for name, size in sizes.items() if size > 1] or ["tensor 1"]
    expert = f", expert {options.expert}" if options.expert > 1 else ""
    return " × ".join(factors) + expert
