"""Deletes registrations of samplers that ended long ago; an elastic fleet leaves many."""

from __future__ import annotations

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.stores.connect import Stores

PAGE = 500
KEPT_SECONDS = 86_400.0
"""Registrations of ended samplers are kept this long, so that their last state can be read."""


def forget_ended(
    stores: Stores, *, run: str, epoch: int, kept_seconds: float = KEPT_SECONDS
) -> int:
    """Delete registrations of samplers that ended long ago; return their number.

    Crashed samplers are counted in the run document first, each exactly once even after a crash of
    this process. A registration that owns a claimed task stays. ``kept_seconds`` is how long a
    registration is kept.

    Raises:
        FencedOutError: a newer trainer took over the run; nothing was deleted.
        LookupError: the run does not exist.
    """
    before = stores.mongo.now() - kept_seconds
    page = stores.samplers.ended(run, before=before, most=PAGE)
    if not page:
        return 0
    known = stores.runs.require(run).samplers_ended
    died = stores.samplers.count_died(run, since=known.before, before=before)
    noted = EndedSamplers(before=max(before, known.before), died=known.died + died)
    stores.runs.note_ended_samplers(run, epoch=epoch, ended=noted)
    forgotten = 0
    while page:
        idle = set(page) - stores.tasks.owners(run, of=page)
        forgotten += stores.samplers.forget(sorted(idle), before=before)
        page = stores.samplers.ended(run, before=before, most=PAGE, after=page[-1])
    return forgotten
