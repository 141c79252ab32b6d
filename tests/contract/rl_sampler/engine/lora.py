"""Runs of adapters beside the tiny model: published by script, scored again by transformers."""

from __future__ import annotations

import json
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save
from transformers import Qwen3Config, Qwen3ForCausalLM

from rl_contracts import adapters
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.manifest import AdapterEntry, Manifest
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.training.lora import LoRA, Target
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.engine_server import ENGINE_START_SECONDS, EngineServer
from tests.contract.rl_sampler.pods import MODEL_KEY
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer, digest, policy_manifest
from tests.contract.rl_sampler.tiny_model import Tensors
from tests.samples.documents import RUN

SECTION = LoRA(rank=4, alpha=8)
FILE = "adapter_model.safetensors"


def entry_of(folder: Path, stores: Stores, section: LoRA = SECTION) -> AdapterEntry:
    """What the trainer of the run says of its adapters."""
    objects = stores.objects
    uri = f"s3://{objects.bucket}/{objects.prefix}{MODEL_KEY}"
    return adapters.adapter_entry(folder, uri=uri, section=section)


def adapter(folder: Path, entry: AdapterEntry, seed: int) -> Tensors:
    """An adapter, as different from those of other seeds as from none.

    With values three times as large float32 alone, transformers against itself in float64, differs
    by 1e-4 and more at one token of a million; with these by 4e-6 at most in 180,000.
    """
    random = np.random.default_rng(seed)
    shapes = adapters.shapes(adapters.model_tensors(folder), entry)
    return {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


class AdapterTrainer(ScriptedTrainer):
    """Publishes adapters."""

    def __init__(
        self, stores: Stores, *, folder: Path, section: LoRA = SECTION, run: str = RUN
    ) -> None:
        super().__init__(stores, run=run)
        self.folder, self.entry = folder, entry_of(folder, stores, section)

    def give(
        self, *, seed: int, weights: Tensors | None = None, entry: AdapterEntry | None = None
    ) -> PolicyPointer:
        """Publish a version that says ``entry`` of itself, the run's own by default."""
        entry = entry or self.entry
        tensors = adapter(self.folder, entry, seed) if weights is None else weights
        data = save(tensors, metadata={"format": "pt"})
        version = self.stores.runs.reserve_version(self.run, epoch=self.epoch)
        manifest = policy_manifest(
            tensors, data, run=self.run, epoch=self.epoch, step=self.step, version=version
        )
        stored = with_entry(manifest, entry).to_bytes()
        prefix = f"{self.stores.run_prefix(self.run)}policies/{version:08d}-{self.epoch}-abcd/"
        self.stores.objects.put(prefix + FILE, data)
        self.stores.objects.put(prefix + "manifest.json", stored)
        return self.point(
            PolicyPointer(
                version=version,
                epoch=self.epoch,
                step=self.step,
                prefix=prefix,
                manifest_sha256=digest(stored),
            )
        )


def with_entry(manifest: Manifest, entry: AdapterEntry) -> Manifest:
    """The same of an adapter's file."""
    return manifest.model_copy(
        update={
            "adapter": entry,
            "files": [file.model_copy(update={"name": FILE}) for file in manifest.files],
            "tensors": [tensor.model_copy(update={"file": FILE}) for tensor in manifest.tensors],
        }
    )


@cache
def model(folder: Path, targets: tuple[Target, ...], rank: int, alpha: float, seed: int) -> Any:
    """The tiny model with an adapter merged into it, in float64: see ``rescoring``."""
    state = load_file(folder / "model.safetensors")
    section = LoRA(rank=rank, alpha=alpha, targets=[*targets])
    entry = adapters.adapter_entry(folder, uri="", section=section)
    adapter_tensors = adapter(folder, entry, seed)
    for name in state:
        layer = name.removesuffix(".weight")
        first = adapter_tensors.get(adapters.tensor_name(layer, "lora_A"))
        if first is not None:
            second = adapter_tensors[adapters.tensor_name(layer, "lora_B")]
            change = second.astype(np.float64) @ first.astype(np.float64)
            state[name] = state[name] + entry.alpha / entry.rank * change
    made = Qwen3ForCausalLM(Qwen3Config.from_pretrained(folder)).eval().double()
    tensors = {name: torch.from_numpy(tensor) for name, tensor in state.items()}
    assert made.load_state_dict(tensors, strict=False).unexpected_keys == []
    made.tie_weights()
    return made


def distance(
    rollout: Rollout,
    *,
    folder: Path,
    seeds: dict[int, int],
    section: LoRA = SECTION,
) -> float:
    """How far the engine's log-probabilities are from those of the span's adapter, at most."""
    tokens, engine_logprobs = (
        unpack_int32(rollout.tokens),
        np.array(unpack_float32(rollout.logprobs)),
    )
    (span,) = rollout.spans
    form = (tuple(section.targets), section.rank, section.alpha)
    merged = model(folder, *form, seeds[span.version])
    with torch.no_grad():
        logits = merged(torch.tensor([tokens])).logits[0, :-1]
    chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    part = slice(span.start, span.end)
    wanted = chosen.numpy()[span.start - 1 : span.end - 1]
    return float(np.abs(engine_logprobs[part] - wanted).max())


def named_adapter(version: int) -> str:
    """The engine's name for a version of the one run."""
    return f"{RUN}.{version}"


def post(engine: EngineServer, path: str, **body: object) -> Any:
    request = urllib.request.Request(
        engine.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ENGINE_START_SECONDS) as answer:
        return json.loads(answer.read())
