"""Makes the driver's client from the stores' settings."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError, InvalidURI

from rl_contracts.stores.clients import mongo_uri
from rl_contracts.stores.clients.settings import StoreSettings, malformed
from rl_contracts.stores.clients.tls import pem_files

Stored = dict[str, Any]

IDLE_MS = 5_000


def connect(
    settings: StoreSettings,
    *,
    timeout_seconds: float,
    reply_seconds: float,
    connections: int | None = None,
) -> MongoClient[Stored]:
    """Make a client; it connects with its first command.

    Args:
        settings: address and credentials.
        timeout_seconds: for finding a primary, and connecting.
        reply_seconds: how long to wait for one reply.
        connections: commands at a time; more wait for their turn, and connections that are not
            used for ``IDLE_MS`` are closed. Each member is then monitored
            over one connection instead of two: a client of a large fleet may not hold more, and
            finds a new primary by the first error instead of at once
            (https://www.mongodb.com/docs/manual/reference/connection-string-options/,
            ``serverMonitoringMode``). None: the driver's defaults.

    Raises:
        RefusedError: the URI is invalid or contradicts the certificates.
    """
    milliseconds = int(1000 * timeout_seconds)
    pems = {
        "tlsCAFile": settings.mongo_ca,
        "tlsCertificateKeyFile": settings.mongo_client_certificate.get_secret_value(),
    }
    options: dict[str, Any] = {
        "connect": False,
        "serverSelectionTimeoutMS": milliseconds,
        "connectTimeoutMS": milliseconds * 3 // 4,  # shorter, so that the error has a cause
        "socketTimeoutMS": int(1000 * reply_seconds),
        "retryWrites": True,
        "retryReads": True,
        "appname": "rl-operator",
    }
    if connections is not None:
        options |= {
            "maxPoolSize": connections,
            "maxIdleTimeMS": IDLE_MS,
            "waitQueueTimeoutMS": options["socketTimeoutMS"],
            "serverMonitoringMode": "poll",
        }
    uri = settings.mongo_uri.get_secret_value()
    try:
        mongo_uri.check(uri)
        with pem_files(pems) as files:
            return MongoClient(uri, **(options | files))
    except InvalidURI as error:
        raise malformed("mongoUri: not a MongoDB URI (mongodb://… or mongodb+srv://…)") from error
    except ConfigurationError as error:
        raise malformed(f"mongoUri: its options contradict each other{_tls(pems)}") from error
    except ValueError as error:
        raise malformed("mongoUri: an option has an invalid value") from error


def _tls(pems: dict[str, str]) -> str:
    return (
        ", or certificates are set together with tls=false, or do not match"
        if any(pems.values())
        else ""
    )
