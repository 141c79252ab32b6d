"""The tables of docs/guides/capacity.md, computed from the worked manifests by the memory model.

``python -m tests.unit.docs.capacity_page`` writes them into the page.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from rl_contracts.capacity.choice import Choice, choose_microbatch
from rl_contracts.capacity.engine import engine_memory
from rl_contracts.capacity.host import host_memory
from rl_contracts.capacity.of_spec import setup_of
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape, shape_of
from rl_contracts.capacity.text import PARTS
from rl_contracts.capacity.training import GIB, SPARE_SHARE, memory
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import MOST_AUTO_TOKENS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "guides" / "capacity.md"
FOLDER = ROOT / "examples" / "capacity"
LENGTHS = (8192, 16_384, 32_768, 65_536, 131_072)
ENGINE_GPUS = (1, 2, 4, 8)
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
LORA = {"lora": {"rank": 16}}


@dataclass(frozen=True)
class Worked:
    """A manifest of ``examples/capacity``, with its model's sizes."""

    name: str

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The RLJob."""
        loaded: dict[str, Any] = yaml.safe_load((FOLDER / f"{self.name}.yaml").read_text())
        return loaded

    @cached_property
    def config(self) -> dict[str, Any]:
        """Of the model's published ``config.json``, what its sizes are read from."""
        loaded: dict[str, Any] = json.loads((FOLDER / f"{self.name}.config.json").read_text())
        return loaded

    @property
    def shape(self) -> Shape:
        """Of the model."""
        return shape_of(self.config)

    @property
    def spec(self) -> RLJobSpec:
        """Of the job."""
        return RLJobSpec.model_validate(self.manifest["spec"])

    @property
    def device_gib(self) -> float:
        """Memory of each GPU, of trainer and engines."""
        size = self.spec.training.memory.device_gib
        assert size is not None, f"{self.name} does not say which GPUs it is for"
        return size

    def changed(
        self,
        *,
        replicas: int,
        gpus: int,
        parallelism: Mapping[str, int],
        training: Mapping[str, Any],
    ) -> RLJobSpec:
        """The job with another trainer."""
        sections = copy.deepcopy(self.manifest["spec"])
        sections["training"] |= training
        sections["trainer"] = {
            "replicas": replicas,
            "parallelism": parallelism,
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }
        return RLJobSpec.model_validate(sections)


WORKED = [
    Worked(name)
    for name in ("qwen3-8b", "qwen3-32b", "llama-3.3-70b", "gpt-oss-120b", "qwen3-235b-a22b")
]
TRAINERS: list[tuple[str, int, int, dict[str, int], dict[str, Any]]] = [
    ("qwen3-8b", 1, 4, {}, {}),
    ("qwen3-8b", 1, 8, {}, {}),
    ("qwen3-8b", 1, 8, {"tp": 2}, {}),
    ("qwen3-8b", 1, 8, {"cp": 2}, {}),
    ("qwen3-8b", 1, 2, {}, {"offloadOptimizer": True}),
    ("qwen3-8b", 1, 1, {}, LORA),
    ("qwen3-32b", 1, 8, {}, {}),
    ("qwen3-32b", 2, 8, {}, {}),
    ("qwen3-32b", 2, 8, {"tp": 2}, {}),
    ("qwen3-32b", 2, 8, {"cp": 2}, {}),
    ("qwen3-32b", 1, 8, {}, {"offloadOptimizer": True, "offloadActivations": True}),
    ("qwen3-32b", 1, 4, {}, LORA),
    ("llama-3.3-70b", 4, 8, {}, {}),
    ("llama-3.3-70b", 4, 8, {"tp": 8}, {}),
    ("llama-3.3-70b", 4, 8, {"tp": 4, "cp": 2}, {}),
    ("llama-3.3-70b", 8, 8, {"tp": 8}, {}),
    ("llama-3.3-70b", 1, 8, {"cp": 2}, LORA),
    ("gpt-oss-120b", 2, 8, {"ep": 8}, {}),
    ("gpt-oss-120b", 4, 8, {}, {}),
    ("gpt-oss-120b", 4, 8, {"ep": 8}, {}),
    ("gpt-oss-120b", 4, 8, {"cp": 2, "ep": 8}, {}),
    ("gpt-oss-120b", 1, 8, {}, LORA),
    ("qwen3-235b-a22b", 4, 8, {"ep": 8}, {}),
    ("qwen3-235b-a22b", 8, 8, {}, {}),
    ("qwen3-235b-a22b", 8, 8, {"ep": 8}, {}),
    ("qwen3-235b-a22b", 8, 8, {"cp": 2, "ep": 8}, {}),
    ("qwen3-235b-a22b", 2, 8, {}, LORA),
]
"""Trainers: model, pods, GPUs of each, ``trainer.parallelism``, and what ``training`` adds."""


def rendered(page: str) -> str:
    """The page with its tables computed again."""
    return TABLE.sub(lambda match: f"{match[1]}{table(TABLES[match[2]]())}{match[3]}", page)


def table(rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown; the first row is its header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = lines[0].count("|") - 1
    return "\n".join([lines[0], f"|{'---|' * columns}", *lines[1:], ""])


def setup(worked: Worked, spec: RLJobSpec) -> Setup:
    """How a job trains on its GPUs."""
    return setup_of(spec, cuda=True, longest=worked.shape.max_positions)


def chosen(worked: Worked, spec: RLJobSpec) -> Choice:
    """What ``maxTokensPerMicrobatch: Auto`` comes to."""
    size = worked.device_gib * GIB
    return choose_microbatch(
        worked.shape, setup(worked, spec), device_bytes=size, most=MOST_AUTO_TOKENS
    )


def gib(number: float) -> str:
    """Bytes in GiB."""
    return f"{number / GIB:.1f}"


def verdict(number: float, device_gib: float) -> str:
    """GiB, marked where they do not fit a GPU with its spare share."""
    fits = number <= device_gib * GIB * (1 - SPARE_SHARE)
    return gib(number) if fits else f"{gib(number)} ✗"


def of_models() -> Iterator[list[str]]:
    yield ["manifest", "`model_type`", "parameters (10⁹)", "layers", "hidden", "heads", "experts"]
    for worked in WORKED:
        shape = worked.shape
        yield [
            f"[`{worked.name}.yaml`](../../examples/capacity/{worked.name}.yaml)",
            f"`{shape.family}`",
            f"{shape.parameters / 1e9:.2f}",
            str(shape.layers),
            str(shape.hidden),
            f"{shape.heads} ({shape.key_value_heads} of keys and values)",
            f"{shape.experts}, {shape.experts_per_token} a token" if shape.experts else "–",
        ]


def of_trainers() -> Iterator[list[str]]:
    choices = [chosen(worked, worked.spec) for worked in WORKED]
    peaks = [choice.memory.at_peak for choice in choices]
    parts = [part for part in PARTS if any(getattr(each, part) for each in peaks)]
    yield ["manifest", "pods × GPUs", "mesh", "tokens", *parts, "sum", "GPU"]
    for worked, choice in zip(WORKED, choices, strict=True):
        spec = worked.spec
        yield [
            worked.name,
            f"{spec.trainer.replicas} × {spec.trainer.gpus}",
            str(spec.trainer.mesh()),
            f"{choice.tokens:,}",
            *(gib(getattr(choice.memory.at_peak, part)) for part in parts),
            verdict(choice.memory.total, worked.device_gib),
            f"{worked.device_gib:g}",
        ]


def of_hosts() -> Iterator[list[str]]:
    yield ["manifest", "pods × GPUs", "loading", "published", "checkpoint", "export"]
    for worked in WORKED:
        spec = worked.spec
        host = host_memory(worked.shape, setup(worked, spec), processes=spec.trainer.processes)
        yield [
            worked.name,
            f"{spec.trainer.replicas} × {spec.trainer.gpus}",
            gib(host.loading),
            f"{host.published / GIB:,.0f}",
            f"{host.checkpoint / GIB:,.0f}",
            f"{host.export / GIB:,.0f}",
        ]


def of_lengths() -> Iterator[list[str]]:
    yield ["manifest", "GPU", *(f"{length:,}" for length in LENGTHS)]
    for worked in WORKED:
        yield [
            worked.name,
            f"{worked.device_gib:g}",
            *(_at_length(worked, length) for length in LENGTHS),
        ]


def _at_length(worked: Worked, length: int) -> str:
    if length > (worked.shape.max_positions or length):
        return "–"
    setup_at_length = replace(
        setup(worked, worked.spec), microbatch_tokens=length, longest_tokens=length
    )
    return verdict(memory(worked.shape, setup_at_length).total, worked.device_gib)


def of_meshes() -> Iterator[list[str]]:
    yield ["model", "pods × GPUs", "mesh", "also", "weights, gradients, moments", "sum", "tokens"]
    by_name = {worked.name: worked for worked in WORKED}
    for name, replicas, gpus, parallelism, training in TRAINERS:
        worked = by_name[name]
        spec = worked.changed(
            replicas=replicas, gpus=gpus, parallelism=parallelism, training=training
        )
        longest = setup(worked, spec).longest_tokens
        longest_setup = replace(setup(worked, spec), microbatch_tokens=longest)
        needed, choice = memory(worked.shape, longest_setup), chosen(worked, spec)
        yield [
            name,
            f"{replicas} × {gpus}",
            str(spec.trainer.mesh()),
            ", ".join(f"`{option}`" for option in training) or "–",
            gib(needed.fixed),
            verdict(needed.total, worked.device_gib),
            f"{choice.tokens:,}" if choice.fits else "–",
        ]


def of_engines() -> Iterator[list[str]]:
    yield [
        "manifest",
        "pods × GPUs",
        "weights",
        "cache",
        "GPU",
        "tokens in the cache",
        "whole episodes",
        "a version",
    ]
    for worked in WORKED:
        (group,) = worked.spec.samplers
        held = engine_memory(worked.shape, worked.spec, group.template, size_gib=worked.device_gib)
        context = worked.spec.agent.sampling.max_context_tokens
        yield [
            worked.name,
            f"{group.template.autoscaling.min_replicas} × {held.gpus}",
            gib(held.weights),
            gib(held.cache),
            f"{worked.device_gib:g}",
            f"{held.tokens:,}",
            f"{held.tokens // context} of {context:,}",
            gib(held.weights * held.gpus),
        ]


def of_pools() -> Iterator[list[str]]:
    yield ["model", "GPU", *(f"{gpus} GPU{'s' if gpus > 1 else ''}" for gpus in ENGINE_GPUS)]
    for worked in WORKED:
        yield [
            worked.name,
            f"{worked.device_gib:g}",
            *(_in_cache(worked, gpus) for gpus in ENGINE_GPUS),
        ]


def _in_cache(worked: Worked, gpus: int) -> str:
    (group,) = worked.spec.samplers
    engine = group.template.engine.model_copy(update={"tensor_parallel": gpus})
    template = group.template.model_copy(update={"engine": engine})
    held = engine_memory(worked.shape, worked.spec, template, size_gib=worked.device_gib)
    return f"{held.tokens:,}" if held.tokens else "–"


TABLES = {
    "models": of_models,
    "trainers": of_trainers,
    "hosts": of_hosts,
    "lengths": of_lengths,
    "meshes": of_meshes,
    "engines": of_engines,
    "pools": of_pools,
}

if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
