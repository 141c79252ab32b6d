"""Brings in what the manifest adds to this sampler, before anybody counts on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.problems import Problems
from rl_sampler.scorers import Scorers
from rl_sampler.user_code.code import user_threads
from rl_sampler.user_code.own import OwnCode, load_own

TOPIC = "user code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What there is now."""

    own: OwnCode
    scorers: Scorers
    known: list[str]
    """Kinds of scorers; those of refused code are among them: what is wrong is the refusal."""
    refusals: tuple[Refusal, ...] = ()


async def bring(spec: RLJobSpec, *, problems: Problems, stop: asyncio.Event) -> Brought | None:
    """Import the user's code, in a thread; None when told to stop before that was done."""
    problems.note(TOPIC, "is being imported")
    work = asyncio.to_thread(load_own, spec, threads=user_threads())
    loading, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not loading.done():
        loading.cancel()
        return None
    refusals: tuple[Refusal, ...] = ()
    try:
        own = loading.result()
    except RefusedError as error:
        problems.note(TOPIC, str(error))
        own, refusals = OwnCode(), (error.refusal,)
    else:
        problems.clear(TOPIC)
    scorers = Scorers(own.scorers)
    theirs = {one.kind for one in spec.reward.scorers if one.entry_point is not None}
    known = sorted({*scorers.known, *theirs})
    return Brought(own=own, scorers=scorers, known=known, refusals=refusals)
