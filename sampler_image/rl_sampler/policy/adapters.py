"""Adapters in the engine: each version has its own name, and several are served at a time."""

from __future__ import annotations

import logging
from collections.abc import Collection

from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineProtocolError, EngineRefusedError
from rl_sampler.engine.serving import label_of
from rl_sampler.engine.weights import Staged

logger = logging.getLogger(__name__)


class Adapters:
    """Loads and unloads adapters; never pauses the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: set[str] = set()
        """Labels that the engine reported after the last load."""

    async def load(self, new: Staged, *, seconds: float) -> None:
        """Load a policy under its label, and check that the engine reports it.

        An adapter that an earlier process of this agent loaded already is kept.

        Raises:
            EngineRefusedError: the engine refused the adapter; none of it stays loaded.
            EngineError: it is unknown whether the engine loaded it; the next call checks.
        """
        label, folder = label_of(new.pointer), str(new.folder)
        held = await self._engine.adapters()
        if label in held and held[label] != folder:
            await self._engine.unload_adapter(label)
        if held.get(label) != folder:
            await self._load(new, seconds=seconds)
            held = await self._engine.adapters()
        if held.get(label) != folder:
            raise EngineProtocolError(f"the engine loaded adapter {label} but reports {held}")
        self._held = set(held)

    async def unload(self, *, but: Collection[str]) -> None:
        """Unload all adapters except some.

        Args:
            but: labels of adapters that are served or have running requests. Hazard: the engine
                waits for an adapter's requests before it unloads it, and delays loads meanwhile.

        Raises:
            EngineError: the engine did not unload one; the next call tries again.
        """
        for label in sorted(self._held.difference(but)):
            if label in await self._engine.adapters():
                await self._engine.unload_adapter(label)
                logger.info("unloaded version %s", label)
            self._held.discard(label)

    async def _load(self, new: Staged, *, seconds: float) -> None:
        label = label_of(new.pointer)
        try:
            await self._engine.load_adapter(new.folder, label=label, seconds=seconds)
        except EngineRefusedError as error:
            await self._forget(label, cause=error)
            raise

    async def _forget(self, label: str, *, cause: EngineRefusedError) -> None:
        """Free the name of an adapter that only some of the engine's processes loaded."""
        try:
            await self._engine.unload_adapter(label)
        except EngineRefusedError as error:
            # The usual case: no process loaded it, so there is nothing to unload.
            cause.add_note(f"unloading its remains was refused, too: {error}")
