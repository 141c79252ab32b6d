"""Committing: the engine takes over a staged policy within one short pause."""

from __future__ import annotations

import time

from rl_contracts.errors import RLError
from rl_contracts.spec.storage import Pause
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError, EngineProtocolError, EngineRefusedError
from rl_sampler.engine.serving import label_of
from rl_sampler.engine.weights import Staged

GRACE_SECONDS = 1.0


class CommitError(RLError):
    """The engine did not take a policy over."""


class RolledBackError(CommitError):
    """It serves the one before again."""


class WeightsUnknownError(CommitError):
    """Nobody knows what it holds; it is left paused and must be restarted."""


async def commit(
    engine: Engine, new: Staged, *, old: Staged | None, seconds: float, pause: Pause = "Retract"
) -> float:
    """Pause, load, check, resume.

    Args:
        engine: the engine.
        new: the policy to serve.
        old: what it serves now; loaded again when the new one fails, since a refused update may
            have been applied. None when it serves nothing yet: then it stays paused on failure.
        seconds: how long loading may take.
        pause: what becomes of running requests. Where nobody knows what the engine serves its
            cache is emptied, so then they are always taken back. With ``InPlace`` the cache
            stays: requests of the new policy must have a ``cache_key`` of their own.

    Returns:
        How long the engine was paused, in seconds.

    Raises:
        RolledBackError: the engine refused the new policy and serves the old one.
        WeightsUnknownError: it serves nothing that is known.
        EngineError: it went away before anything was changed, or refused its first policy.
    """
    started = time.monotonic()
    mode = pause if old is not None else "Retract"
    empty = mode != "InPlace"
    await engine.pause(mode)
    try:
        await _load(engine, new, seconds=seconds, empty_cache=empty)
    except EngineRefusedError as error:
        if old is None:
            raise
        await _roll_back(engine, old, seconds=seconds, empty_cache=empty, cause=error)
        await engine.resume()
        raise RolledBackError(str(error)) from error
    except EngineError as error:
        raise WeightsUnknownError(str(error)) from error
    await engine.resume()
    return time.monotonic() - started


async def _load(engine: Engine, policy: Staged, *, seconds: float, empty_cache: bool) -> None:
    label, seconds = label_of(policy.pointer), max(seconds, GRACE_SECONDS)
    await engine.load(policy.folder, label=label, seconds=seconds, empty_cache=empty_cache)
    found = await engine.weight_version()
    if found != label:
        raise EngineProtocolError(f"engine was given version {label} and reports {found!r}")


async def _roll_back(
    engine: Engine,
    old: Staged,
    *,
    seconds: float,
    empty_cache: bool,
    cause: EngineRefusedError,
) -> None:
    try:
        await _load(engine, old, seconds=seconds, empty_cache=empty_cache)
    except EngineError as error:
        raise WeightsUnknownError(f"{cause}; and going back failed: {error}") from error
