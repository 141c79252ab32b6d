"""What the sampler benchmarks share: real stores, engines on the CPU, agents, and a publisher."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer.distributed.channel import ShardRequester
from rl_trainer.distributed.world import ALONE
from rl_trainer.publish import broadcast
from rl_trainer.publish.policy_shards import PolicyShards
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import Pod, new_pod, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import write_model
from tests.servers import free_port, running_minio, running_store, settings_of

SHAPE = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 2240,
}
"""114 million parameters: 228 MB in bfloat16."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@contextmanager
def running_stores(folder: Path) -> Iterator[tuple[StoreSettings, Stores]]:
    """Start a document store and a bucket below a folder, and connect to them."""
    for name in ("store", "minio"):
        (folder / name).mkdir()
    with running_store(folder / "store") as store, running_minio(folder / "minio") as minio:
        settings = settings_of(store, minio)
        with closing(Stores.connect(settings, patience_seconds=60)) as stores:
            stores.mongo.ensure_indexes()
            stores.objects.make_bucket()
            yield settings, stores


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside runs on this core, and so does this program meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def write_large(folder: Path, *, dtype: str, layers: int = 12) -> dict[str, Tensor]:
    """Write a model of SHAPE in Hugging Face layout, and return its tensors."""
    write_model(folder)
    shape = SHAPE | {"num_hidden_layers": layers}
    config = json.loads((folder / "config.json").read_bytes()) | shape | {"torch_dtype": dtype}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = random_tensors(config, DTYPES[dtype])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return tensors


def random_tensors(config: dict[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights of a Qwen3 model in Hugging Face names."""
    generator = torch.Generator().manual_seed(0)
    hidden, head, feed = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        names: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "self_attn.q_norm": (head,),
            "self_attn.k_norm": (head,),
            "mlp.gate_proj": (feed, hidden),
            "mlp.up_proj": (feed, hidden),
            "mlp.down_proj": (hidden, feed),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in names.items()}
    return {
        name: (
            torch.ones(shape) if len(shape) == 1 else 0.02 * torch.randn(shape, generator=generator)
        ).to(dtype)
        for name, shape in shapes.items()
    }


@dataclass
class Publisher:
    """Publishes versions of a run as the trainer does."""

    script: ScriptedTrainer
    delta: Delta
    base: broadcast.Base | None = None

    def __post_init__(self) -> None:
        self.shards = PolicyShards(self.script.stores.objects, ThreadPoolExecutor(2))
        self.request_all = ShardRequester(ALONE, self.shards, written="policy").request_all

    def publish(self, tensors: dict[str, Tensor]) -> PolicyPointer:
        """Write the next version and point to it."""
        script = self.script
        version = script.stores.runs.reserve_version(script.run, epoch=script.epoch)
        prefix = f"{script.stores.run_prefix(script.run)}policies/{version:08d}-{script.epoch}-ab/"
        pointer = PolicyPointer(
            version=version, epoch=script.epoch, step=script.step, prefix=prefix, manifest_sha256=""
        )
        self.shards.take(version, tensors)
        sent = broadcast.send(
            script.stores.objects,
            self.request_all,
            ranks=1,
            number=version,
            pointer=pointer,
            run=script.run,
            base=self.base,
            delta=self.delta,
        )
        broadcast.keep_base(self.request_all, ranks=1, base=sent.base)
        self.base = sent.base
        return script.point(pointer.model_copy(update={"manifest_sha256": sent.manifest_sha256}))


@dataclass
class World:
    """Stores, a run with its model in the bucket, engines and pods."""

    folder: Path
    settings: StoreSettings
    stores: Stores
    script: ScriptedTrainer
    engines: list[EngineServer]
    pods: list[Pod]


@contextmanager
def running_world(
    folder: Path, model: Path, *, dtype: str, samplers: int, sections: dict[str, Any]
) -> Iterator[World]:
    """Engines on the first core; stores and agents on the second."""
    with ExitStack() as stack:
        with on_core(0):
            engines = [
                start_engine(folder, model, dtype, index, stack) for index in range(samplers)
            ]
        with on_core(1):
            settings, stores = stack.enter_context(running_stores(folder))
            script = start_run(stores, model)
            pods = [
                new_pod(
                    folder / f"pod-{number}",
                    engine_url=engine.url,
                    settings=settings,
                    stores=stores,
                    sections=sections,
                )
                for number, engine in enumerate(engines)
            ]
            for pod in pods:
                staged = pod.stage()
                assert staged.returncode == 0, staged.stderr
                pod.serve()
                stack.callback(pod.signal, signal.SIGKILL)
        for engine in engines:
            engine.wait_ready()
        yield World(folder, settings, stores, script, engines, pods)


def start_engine(
    folder: Path, model: Path, dtype: str, number: int, stack: ExitStack
) -> EngineServer:
    """Start a pod; the exit stack kills it."""
    home = folder / f"engine-{number}"
    home.mkdir()
    engine = EngineServer(port=free_port(), model=model, folder=home, dtype=dtype)
    engine.start()
    stack.callback(engine.kill)
    return engine


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed in the end."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor seconds that these programs have used so far, all threads together."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Megabytes of memory that a program holds."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line[:6] == "VmRSS:"
    )
    return int(line.split()[1]) / 1024
