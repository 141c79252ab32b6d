"""The sizes of a vision tower, read from the ``vision_config`` of a ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PREFIX = "vision_"
MOST = 1 << 40
SIZES = ("depth", "hidden_size", "intermediate_size", "patch_size", "out_hidden_size")
MERGE, TIME, CHANNELS = 2, 2, 3
"""What published configs leave out: patches are merged 2 by 2, and an image is shown twice."""
QWEN_2_5 = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "patch_size": 14,
    "out_hidden_size": 3584,
}
QWEN_3 = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "patch_size": 16,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}
DEFAULTS = {"qwen2_5_vl": QWEN_2_5, "qwen3_vl": QWEN_3}
"""What a published config leaves out: the defaults of transformers 5.19's config classes."""
DEEP_STACKED = 3
"""Layers of a Qwen3-VL tower whose states are also given to the language model's first layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionShape:
    """A vision tower."""

    parameters: int
    layers: int
    hidden: int
    feed_forward: int
    patches: int
    """Patches that become one token of the language model."""


def vision_fields(config: Mapping[str, Any]) -> dict[str, int]:
    """The fields of ``VisionShape``, each after ``PREFIX``; none where a size is not known.

    Args:
        config: a ``config.json``, or a mapping that holds these fields already. It is not trusted.
    """
    held = {f"{PREFIX}{name}": config.get(f"{PREFIX}{name}") for name in VisionShape.__slots__}
    if all(_usable(value) for value in held.values()):
        return {name: int(value) for name, value in held.items() if value is not None}
    section = config.get("vision_config")
    if not isinstance(section, Mapping):
        return {}
    family = str(config.get("model_type", ""))
    defaults: dict[str, int] = DEFAULTS.get(family, {})
    sizes = {name: section.get(name, defaults.get(name)) for name in SIZES}
    if not defaults or not all(_usable(value) for value in sizes.values()):
        return {}
    counted = {name: int(value) for name, value in sizes.items() if value is not None}
    parameters = _qwen_2_5(counted) if family == "qwen2_5_vl" else _qwen_3(counted, section)
    fields = {
        "parameters": parameters,
        "layers": counted["depth"],
        "hidden": counted["hidden_size"],
        "feed_forward": counted["intermediate_size"],
        "patches": MERGE**2,
    }
    return {f"{PREFIX}{name}": value for name, value in fields.items()} if parameters < MOST else {}


def vision_of(fields: Mapping[str, Any]) -> VisionShape | None:
    """The tower of a model, by what ``vision_fields`` gave; None without one."""
    named = {name: fields.get(f"{PREFIX}{name}") for name in VisionShape.__slots__}
    if not all(_usable(value) for value in named.values()):
        return None
    return VisionShape(**{name: int(value) for name, value in named.items() if value is not None})


def _usable(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST


def _patches(sizes: Mapping[str, int]) -> int:
    return CHANNELS * TIME * sizes["patch_size"] ** 2 * sizes["hidden_size"]


def _attention(hidden: int) -> int:
    return 4 * hidden * hidden + 4 * hidden


def _merger(hidden: int, out: int) -> int:
    """Two linear layers over ``MERGE`` by ``MERGE`` patches."""
    wide = MERGE**2 * hidden
    return wide * wide + wide + wide * out + out


def _qwen_2_5(sizes: Mapping[str, int]) -> int:
    hidden, width = sizes["hidden_size"], sizes["intermediate_size"]
    block = 2 * hidden + _attention(hidden) + 3 * hidden * width + 2 * width + hidden
    merger = hidden + _merger(hidden, sizes["out_hidden_size"])
    return _patches(sizes) + sizes["depth"] * block + merger


def _qwen_3(sizes: Mapping[str, int], section: Mapping[str, Any]) -> int:
    hidden, width, out = sizes["hidden_size"], sizes["intermediate_size"], sizes["out_hidden_size"]
    positions = section.get("num_position_embeddings", QWEN_3["num_position_embeddings"])
    stacked = section.get("deepstack_visual_indexes")
    deep = len(stacked) if isinstance(stacked, list) else DEEP_STACKED
    block = 4 * hidden + _attention(hidden) + 2 * hidden * width + width + hidden
    mergers = 2 * hidden + deep * 2 * MERGE**2 * hidden + (deep + 1) * _merger(hidden, out)
    table = (int(positions) if _usable(positions) else 0) * hidden
    return _patches(sizes) + hidden + table + sizes["depth"] * block + mergers
