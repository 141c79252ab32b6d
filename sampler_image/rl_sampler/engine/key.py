"""The key of a pod's engine, which its agents and the engine alone know.

All containers of a pod share its loopback interface, also those that run code of others. Without a
key that code could load, unload and sample every run's adapters. The init container makes the key,
in a volume that no other container mounts. SGLang reads it from a file of arguments (``--config``),
so that it is on no command line and in no object of the API server.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

KEY_FILE, CONFIG_FILE = "key", "engine.yaml"
KEY_BYTES = 32


def make_key(folder: Path) -> None:
    """Write a new key, and the engine's file with it, unless there is one already.

    The init containers of a pod's runs call this one after the other.
    """
    if not (folder / KEY_FILE).exists():
        key = secrets.token_hex(KEY_BYTES)
        _write(folder / CONFIG_FILE, f'api-key: "{key}"\n')
        _write(folder / KEY_FILE, key)


def read_key(folder: Path | None) -> str:
    """The key; empty without a folder."""
    return "" if folder is None else (folder / KEY_FILE).read_text()


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.chmod(0o440)
    os.replace(unfinished, path)
