"""Commits a staged policy: the engine loads it within a short pause."""

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
    """The engine did not load a policy."""


class RolledBackError(CommitError):
    """The engine refused the new policy and serves the previous policy again."""


class WeightsUnknownError(CommitError):
    """It is unknown which weights the engine holds; it stays paused and must be restarted."""


async def commit(
    engine: Engine, new: Staged, *, old: Staged | None, seconds: float, pause: Pause = "Retract"
) -> float:
    """Pause, load, check, resume.

    Args:
        engine: the engine.
        new: the policy to serve.
        old: the policy that is served now. It is loaded again when the new policy fails, since a
            refused update may have been applied. None when nothing is served yet: then the engine
            stays paused on failure.
        seconds: time limit of a load.
        pause: what happens to running requests. Without ``old`` the cache must be emptied, so
            requests are always retracted then. With ``InPlace`` the cache stays: requests of the
            new policy must have a new ``cache_key``.

    Returns:
        Seconds for which the engine was paused.

    Raises:
        RolledBackError: the engine refused the new policy and serves the old policy.
        WeightsUnknownError: it is unknown which weights the engine serves.
        EngineError: the engine ended before anything changed, or refused its first policy.
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
    reported = await engine.weight_version()
    if reported != label:
        raise EngineProtocolError(f"the engine loaded version {label} but reports {reported!r}")


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
