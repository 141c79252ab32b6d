"""Store settings of the audit's command line: in a pod, or through forwarded ports."""

from __future__ import annotations

import argparse
import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from rl_contracts import env
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.stores.clients.settings import StoreSettings

PREFIX = "RL_STORES_"
MOUNTED = Path("/etc/rl/stores")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that locate the stores; no option takes a secret value."""
    group = parser.add_argument_group(
        "stores",
        "The mounted Secret is read from --stores-folder, $RL_STORES_FOLDER or "
        f"{MOUNTED}, in this order. An environment variable overrides a key, e.g. mongoUri is "
        "RL_STORES_MONGO_URI.",
    )
    group.add_argument("--stores-folder", type=Path, metavar="FOLDER")
    group.add_argument(
        "--secret",
        metavar="FILE",
        help="file with the output of `kubectl get secret rl-operator-stores -o json`; - is stdin",
    )
    group.add_argument(
        "--mongo-address",
        metavar="HOST:PORT",
        help="address to use instead of the one in mongoUri, e.g. a forwarded port",
    )
    group.add_argument("--s3-endpoint", metavar="URL", help="endpoint to use instead of s3Endpoint")


def resolve(
    options: argparse.Namespace, environ: Mapping[str, str], stdin: IO[str]
) -> StoreSettings:
    """Merge the settings; later sources win: folder, Secret, environment, options.

    Raises:
        RefusedError: a key is missing or malformed; the message shows no value.
    """
    values = _mounted(options, environ)
    if options.secret:
        values |= _decoded(stdin.read() if options.secret == "-" else _text(options.secret))
    for name, field in StoreSettings.model_fields.items():
        value = environ.get(PREFIX + name.upper(), "")
        if value and field.alias:
            values[field.alias] = value
    if options.s3_endpoint:
        values["s3Endpoint"] = options.s3_endpoint
    settings = StoreSettings.from_mapping(values)
    if not options.mongo_address:
        return settings
    uri = readdressed(settings.mongo_uri.get_secret_value(), options.mongo_address)
    return settings.model_copy(update={"mongo_uri": SecretStr(uri)})


def readdressed(uri: str, address: str) -> str:
    """Replace the host of a MongoDB URI, and connect to it directly, not to its replica set."""
    parts = urlsplit(uri)
    if parts.scheme != "mongodb":
        raise _refused(
            "mongoUri",
            f"{parts.scheme}:// does not name a single server.",
            "Set RL_STORES_MONGO_URI.",
        )
    credentials, at, _ = parts.netloc.rpartition("@")
    options = [
        part for part in parts.query.split("&") if part and not part.startswith("replicaSet=")
    ]
    query = "&".join([*options, "directConnection=true"])
    netloc = f"{credentials}{at}{address}"
    return urlunsplit(parts._replace(netloc=netloc, path=parts.path or "/", query=query))


def _mounted(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    named = options.stores_folder or environ.get(env.STORES_FOLDER, "")
    folder = Path(named) if named else MOUNTED
    if options.stores_folder and not folder.is_dir():
        raise _refused(
            "--stores-folder",
            f"{folder} is not a folder.",
            "Name the folder of the mounted Secret.",
        )
    keys = [field.alias for field in StoreSettings.model_fields.values() if field.alias]
    return {key: (folder / key).read_text().strip() for key in keys if (folder / key).is_file()}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise _refused("--secret", f"{path}: {error.strerror}.", "Name a readable file.") from error


def _decoded(text: str) -> dict[str, str]:
    try:
        data = json.loads(text)["data"]
        return {key: base64.b64decode(value).decode().strip() for key, value in data.items()}
    except (ValueError, TypeError, KeyError, AttributeError, binascii.Error) as error:
        raise _refused(
            "--secret",
            "The content is not a Secret in JSON.",
            "Give the output of kubectl get secret NAME -o json.",
        ) from error


def _refused(field: str, message: str, remedy: str) -> RefusedError:
    return RefusedError(
        Refusal(field=field, value="", reason="BadSettings", message=message, remedy=remedy)
    )
