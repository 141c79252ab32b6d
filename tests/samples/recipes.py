"""The recipes of the examples, applied as by ``kubectl patch --type merge`` (RFC 7396)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECIPES = sorted(path.stem for path in (EXAMPLES / "recipes").glob("*.yaml"))


def recipe(name: str) -> dict[str, Any]:
    """A recipe's patch."""
    patch: dict[str, Any] = yaml.safe_load((EXAMPLES / "recipes" / f"{name}.yaml").read_text())
    return patch


def gsm8k() -> dict[str, Any]:
    """The job that the recipes' page changes."""
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / "gsm8k" / "one-gpu.yaml").read_text())
    return manifest


def merged(manifest: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the patch; null removes a field."""
    result = dict(manifest)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result
