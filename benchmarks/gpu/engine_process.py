"""SGLang as a process on a GPU, and the files that it is given."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.trainer import HALF_BILLION
from rl_contracts import engine_server
from rl_contracts.spec.engine import Engine as Options
from rl_sampler.engine.client import Engine, PingResult
from rl_sampler.engine.errors import EngineError
from tests.servers import free_port

START_SECONDS, POLL_SECONDS = 300.0, 0.5
RANK = 16
PROJECTIONS = ("q_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class Files:
    """Two policies in bfloat16, an adapter, and the engine's log."""

    folder: Path

    @property
    def policies(self) -> tuple[Path, Path]:
        """In Hugging Face layout."""
        return self.folder / "first", self.folder / "second"

    @property
    def adapter(self) -> Path:
        """In PEFT's layout."""
        return self.folder / "adapter"

    @property
    def gigabytes(self) -> float:
        """Of a policy."""
        return sum(each.stat().st_size for each in self.policies[0].glob("*.safetensors")) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An engine's process and port."""

    process: subprocess.Popen[bytes]
    port: int


def write(files: Files) -> None:
    """Write the policies and the adapter."""
    import torch
    from safetensors.torch import save_file

    from tests.models.tiny_model import tiny_model, tiny_tokenizer

    changes = HALF_BILLION | {"initializer_range": 0.04}
    for seed, folder in enumerate(files.policies):
        model = tiny_model(seed, **changes).to(torch.bfloat16)
        model.save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
    files.adapter.mkdir()
    tensors = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in PROJECTIONS:
            for part, shape in (
                ("lora_A", (RANK, module.in_features)),
                ("lora_B", (module.out_features, RANK)),
            ):
                values = 0.02 * torch.randn(shape)
                tensors[f"base_model.model.{name}.{part}.weight"] = values.to(torch.bfloat16)
    save_file(tensors, files.adapter / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": list(PROJECTIONS),
        "base_model_name_or_path": str(files.policies[0]),
        "bias": "none",
        "lora_dropout": 0.0,
    }
    (files.adapter / "adapter_config.json").write_text(json.dumps(config))


@contextmanager
def server(
    files: Files, options: Options, arguments: Sequence[str], *, first: Sequence[str] = ()
) -> Iterator[Server]:
    """Run an engine; the end of its log is shown where the block fails."""
    port, log = free_port(), files.folder / "engine.log"
    command = [
        *(sys.executable, "-m", "sglang.launch_server"),
        *engine_server.server_arguments(
            options,
            folder=str(files.policies[0]),
            port=port,
            precision="BF16",
            also=("--mem-fraction-static", "0.4", *first),
        ),
        *arguments,
    ]
    given = os.environ | {"HF_HUB_OFFLINE": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=given)
    try:
        yield Server(process=process, port=port)
    except BaseException:
        print(log.read_text(errors="replace")[-6000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(60)


async def ready(engine: Engine, process: subprocess.Popen[bytes]) -> None:
    """Wait until the engine samples."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"the engine ended with {process.returncode}")
        if await engine.ping() is PingResult.ANSWERS:
            try:
                await engine.check_health()
            except EngineError:
                pass  # it listens before it can sample
            else:
                return
        await asyncio.sleep(POLL_SECONDS)
    raise SystemExit(f"the engine did not sample within {START_SECONDS:.0f} s")
