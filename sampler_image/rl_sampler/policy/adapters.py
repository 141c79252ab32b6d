"""Adapters in the engine: each version has a name of its own, and several are served at a time."""

from __future__ import annotations

import logging
from collections.abc import Collection

from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineProtocolError, EngineRefusedError
from rl_sampler.engine.serving import label_of
from rl_sampler.engine.weights import Staged

logger = logging.getLogger(__name__)


class Adapters:
    """Gives the engine adapters and takes them away; never pauses it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: set[str] = set()
        """Names that the engine told of the last time that it was given one."""

    async def load(self, new: Staged, *, seconds: float) -> None:
        """Load a policy under its label, and ask the engine whether it has it.

        One that it holds already, from an earlier process of this agent, is left as it is.

        Raises:
            EngineRefusedError: the engine did not take it; it is not left half loaded.
            EngineError: it is not known whether it did; the next try finds out.
        """
        label, folder = label_of(new.pointer), str(new.folder)
        held = await self._engine.adapters()
        if label in held and held[label] != folder:
            await self._engine.unload_adapter(label)
        if held.get(label) != folder:
            await self._load(new, seconds=seconds)
            held = await self._engine.adapters()
        if held.get(label) != folder:
            raise EngineProtocolError(f"engine was given adapter {label} and reports {held}")
        self._held = set(held)

    async def unload(self, *, but: Collection[str]) -> None:
        """Have the engine forget all adapters but these.

        Args:
            but: names of those that are served or have requests: unloading waits for requests, and
                loading would wait for that.

        Raises:
            EngineError: it did not; what is left is tried again.
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
        """Free the name of an adapter that only some of the engine's processes took."""
        try:
            await self._engine.unload_adapter(label)
        except EngineRefusedError as error:
            # The usual case: none took it, so that there is nothing to unload.
            cause.add_note(f"and unloading what there was of it: {error}")
