"""An engine that takes adapters, runs of adapters, and pods beside the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.spec.training.lora import TARGETS
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.engine.lora import (
    SECTION,
    AdapterTrainer,
    post,
)
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import MakePod, Pod, pods_in, put_model
from tests.samples.documents import RUN

ARGUMENTS = (
    "--enable-lora",
    "--max-lora-rank",
    "4",
    "--lora-target-modules",
    *TARGETS,
    "--lora-strict-loading",
    "--lora-backend",
    "torch_native",
)
"""As the operator sets them for ``SECTION`` on a CPU."""
AGENT = {"sampling": {"maxTokensPerTurn": 150, "maxContextTokens": 1000}}
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}


@pytest.fixture(scope="session")
def lora_engine(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[EngineServer]:
    """An engine that takes adapters."""
    folder = tmp_path_factory.mktemp("lora")
    with EngineServer.running(model=tiny_model, folder=folder, arguments=ARGUMENTS) as server:
        yield server


@pytest.fixture
def lora_trainer(stores: Stores, tiny_model: Path) -> AdapterTrainer:
    """A run with its model in the bucket and nothing published yet."""
    put_model(stores, tiny_model)
    return AdapterTrainer(stores, folder=tiny_model)


@pytest.fixture
def make_lora_pod(
    tmp_path: Path,
    lora_engine: EngineServer,
    fork_server: ForkServer,
    store_settings: StoreSettings,
    stores: Stores,
) -> Iterator[MakePod]:
    """Makes pods beside the engine; afterwards it holds no adapter again."""
    with pods_in(
        tmp_path,
        engine_url=lora_engine.url,
        settings=store_settings,
        stores=stores,
        launch=fork_server.launch,
    ) as new:

        def make(
            name: str = "pod-a", *, section: dict[str, Any] | None = None, run: str = RUN
        ) -> Pod:
            lora = section or SECTION.model_dump(by_alias=True)
            training = {"steps": 60, "precision": "FP32", "lora": lora}
            sections = {"agent": AGENT, "algorithm": ANY_AGE, "training": training}
            return new(name, sections=sections, run=run)

        yield make
    for name in lora_engine.adapters():
        post(lora_engine, "/unload_lora_adapter", lora_name=name)
