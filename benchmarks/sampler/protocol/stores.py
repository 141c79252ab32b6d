"""The stores of helper processes: the clock of the store is the slowed clock."""

from __future__ import annotations

import time

from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects

STORE_TIME = 1_000_000_000.0
"""Store time of 0 on the slowed clock."""


class SlowedMongo(Mongo):
    """A document store whose clock goes as slowly as those of its clients."""

    def now(self) -> float:
        """Ask for the store's clock as often as a real client does, and return the slowed one."""
        super().now()
        return STORE_TIME + time.monotonic()


def settings_of(uri: str) -> StoreSettings:
    """A document store without a bucket."""
    return StoreSettings.from_mapping(
        {
            "mongoUri": uri,
            "mongoDatabase": "rl_fleet",
            "s3Endpoint": "http://127.0.0.1:1",
            "s3Bucket": "none",
            "s3AccessKey": "none",
            "s3SecretKey": "none",
        }
    )


def connected(
    uri: str, objects: Objects | None = None, *, connections: int | None = None
) -> Stores:
    """Stores with a connection of their own; the bucket's client may be shared."""
    settings = settings_of(uri)
    mongo = SlowedMongo(settings, connections=connections)
    return Stores.of(mongo, objects or Objects(settings))
