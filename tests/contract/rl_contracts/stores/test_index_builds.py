"""Indexes that take longer to build than a reply may take."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from tests.network.mongo_front import front_before
from tests.network.mongo_wire import Document
from tests.servers import StoreServer

REPLY_SECONDS, PATIENCE_SECONDS = 0.1, 0.2


class Building:
    """Answers ``createIndexes`` only after so many of them were sent."""

    def __init__(self, commands: int) -> None:
        self.left = commands
        self.over = threading.Event()

    def __call__(self, command: Document) -> None:
        if next(iter(command)) != "createIndexes":
            return
        self.left -= 1
        if self.left < 0:
            self.over.set()
        self.over.wait(60 * REPLY_SECONDS)


def test_an_index_that_takes_long_is_waited_for(
    store_server: StoreServer, store_settings: StoreSettings
) -> None:
    with front_before(store_server.uri) as front:
        settings = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
        with closing(
            Mongo(settings, patience_seconds=PATIENCE_SECONDS, reply_seconds=REPLY_SECONDS)
        ) as mongo:
            front.hook = Building(20)
            with pytest.raises(StoreUnavailableError, match="indexing tasks"):
                mongo.ensure_indexes()  # as a check, which must answer soon
            mongo.ensure_indexes(build_seconds=60.0)
            assert front.hook.over.is_set()


def test_a_store_that_is_away_is_not_taken_for_a_build(store_settings: StoreSettings) -> None:
    away = {"mongoUri": "mongodb://127.0.0.1:9/"}
    settings = StoreSettings.from_mapping(store_settings.to_mapping() | away)
    with (
        closing(Mongo(settings, patience_seconds=PATIENCE_SECONDS)) as mongo,
        pytest.raises(StoreUnavailableError, match="indexing tasks"),
    ):
        mongo.ensure_indexes(build_seconds=60.0)
