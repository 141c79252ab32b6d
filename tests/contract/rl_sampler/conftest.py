"""A real SGLang server for the session, and agents as processes beside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.engine_server import arguments as arguments_of
from rl_contracts.spec.engine import Engine
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.episodes.killed import PlayKilled, play_with_a_kill
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import MakePod, Pod, pods_in, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import write_model

OPTIONS = Engine(memory_fraction=0.4, context_tokens=16_016)
"""Of the session's engine: those that a processor has. The model was made for 16,384 tokens."""


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in Hugging Face layout."""
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture(scope="session")
def engine_server(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[EngineServer]:
    """One engine for the session; a test that kills it starts it again."""
    folder = tmp_path_factory.mktemp("engine")
    arguments = tuple(arguments_of(OPTIONS))
    with EngineServer.running(model=tiny_model, folder=folder, arguments=arguments) as server:
        yield server


@pytest.fixture(scope="session")
def fork_server(tiny_model: Path) -> Iterator[ForkServer]:
    """Starts the agents of the session."""
    server = ForkServer(tiny_model)
    yield server
    server.close()


@pytest.fixture
def trainer(stores: Stores, tiny_model: Path) -> ScriptedTrainer:
    """A run with its model in the bucket and nothing published yet."""
    return start_run(stores, tiny_model)


@pytest.fixture
def play_killed(
    tmp_path: Path,
    trainer: ScriptedTrainer,
    tiny_model: Path,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> PlayKilled:
    """Plays a group whose sampler is killed: ``play_with_a_kill`` in this test's run."""
    return partial(
        play_with_a_kill,
        folder=tmp_path,
        trainer=trainer,
        model=tiny_model,
        settings=store_settings,
        fork_server=fork_server,
    )


@pytest.fixture
def make_pod(
    tmp_path: Path,
    engine_server: EngineServer,
    fork_server: ForkServer,
    store_settings: StoreSettings,
    stores: Stores,
) -> Iterator[MakePod]:
    """Makes pods beside the session's engine; their agents end with the test."""
    with pods_in(tmp_path, engine_url=engine_server.url, launch=fork_server.launch) as new:

        def make(
            name: str = "pod-a",
            *,
            settings: StoreSettings = store_settings,
            stores: Stores = stores,
            **sections: Any,
        ) -> Pod:
            return new(name, settings=settings, stores=stores, sections=sections)

        yield make
