"""The volume with the engine's key, for its agents and the engine alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rl_contracts import env
from rl_operator.render import disk
from rl_operator.render.samplers.shared_engine import Part

Manifest = dict[str, Any]

FOLDER = "/run/rl-engine"
CONFIG = f"{FOLDER}/engine.yaml"
"""Arguments that ``stage`` writes: the key that the engine asks for."""
MOUNT: Manifest = {"name": "engine-key", "mountPath": FOLDER}


def known_to(part: Part) -> Part:
    """A run's part whose init container makes the key and whose agent reads it."""
    return replace(
        part,
        stage=_reached_by(part.stage, MOUNT),
        agent=_reached_by(part.agent, {**MOUNT, "readOnly": True}),
    )


def asked_by(engine: Manifest) -> Manifest:
    """The engine's container, which asks for the key."""
    return engine | {
        "args": ["--config", CONFIG, *engine["args"]],
        "volumeMounts": [*engine["volumeMounts"], {**MOUNT, "readOnly": True}],
    }


def volume() -> Manifest:
    """The volume, in memory."""
    return disk.in_memory("engine-key", disk.SMALL)


def _reached_by(container: Manifest, mount: Manifest) -> Manifest:
    return container | {
        "env": [*container["env"], {"name": env.ENGINE_KEY_FOLDER, "value": FOLDER}],
        "volumeMounts": [*container["volumeMounts"], mount],
    }
