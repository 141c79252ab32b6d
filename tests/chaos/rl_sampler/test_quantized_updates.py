"""An engine in FP8 takes up new weights as if it had started from them.

No GPU is needed: the weights are quantized on the processor; computing with them is not.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from rl_contracts.engine_server import arguments as arguments_of
from rl_contracts.spec.engine import Engine
from tests.contract.rl_sampler.engine_server import EngineServer, get
from tests.contract.rl_sampler.tiny_model import write_model

ARGUMENTS = tuple(arguments_of(Engine(weight_precision="FP8")))


def post(server: EngineServer, path: str, **body: object) -> str:
    request = urllib.request.Request(
        server.url + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def checksums(server: EngineServer) -> dict[str, str]:
    """Of each tensor that the engine holds, scales included."""
    (rank,) = json.loads(post(server, "/weights_checker", action="checksum"))["ranks"]
    held: dict[str, str] = rank["checksums"]
    return held


def load(server: EngineServer, folder: Path, version: str) -> None:
    """As the agent does it."""
    post(
        server,
        "/update_weights_from_disk",
        model_path=str(folder),
        load_format="safetensors",
        weight_version=version,
    )
    assert server.weight_version() == version


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    write_model(first, seed=0)
    write_model(second, seed=5)
    return first, second


def test_updated_weights_are_those_of_a_start(tmp_path: Path, models: tuple[Path, Path]) -> None:
    first, second = models
    with EngineServer.running(
        model=first, folder=tmp_path, arguments=("--dtype", "bfloat16", *ARGUMENTS)
    ) as server:
        started = checksums(server)
        scales = [name for name in started if name.endswith("weight_scale")]
        assert len(scales) == 2 * 4, "four fused linear layers in each of two layers"
        load(server, second, "1")
        updated = checksums(server)
        norms = {name for name in started if "norm" in name}  # all ones, in both models
        assert {name for name in started if started[name] == updated[name]} == norms
        load(server, first, "2")
        assert checksums(server) == started
        assert get(f"{server.url}/ready")[0] == 200
