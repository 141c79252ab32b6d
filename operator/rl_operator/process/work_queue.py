"""The work queue: what changed, once each, in order per key, with delays and backoff.

A key that is added while it is worked on comes again afterwards: nothing is missed and no key is
worked on twice at a time. What is under way is finished before what is new is begun, within bounds:
of many jobs at once the first are soon Ready, instead of all of them late. And what has changed
comes before what is looked at by the clock alone, and before changes that nobody waits for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from rl_operator.process.delays import Delays

K = TypeVar("K")

BACKOFF_BASE_SECONDS = 0.5
BACKOFF_MAX_SECONDS = 120.0
MAX_DOUBLINGS = 10
PATIENCE_SECONDS = 60.0
"""So long what is new waits for what is under way, and then for its turn, one each second: all of
it at once would leave what is under way unfinished, and everything late."""
TURN_SECONDS = 1.0
SHARE = 8
"""Of so many one is new, while little is under way. What begins goes a way of some seconds, most of
which is waiting for others: if the last ones all began at the end, nothing else would be done then.
"""
CROWD = 4
"""Where much is under way, so many new ones come in the time that all of it takes: each of them is
looked at more than a dozen times, and what begins faster than others end makes all of it late."""
LEISURE_SECONDS = 2.0
"""What is asked for so much later, or more, is a look by the clock."""
LEISURELY_SECONDS = 10.0
"""So long such a look, and a change that may wait, waits for other work, or for the end of a rush;
then, of work that is due, one of ``SHARE`` is one of these."""
RUSH, RUSH_SECONDS = 8, 1.0
"""So many changes that are looked at within so long are a rush. While many objects start, most of
the time goes by in waiting for an API server that has too much to do: that no work is due here does
not mean that there is time for what may wait."""


class WorkQueue(Generic[K]):
    """Keys to be worked on. Not for threads: ``BlockingWorkQueue`` is."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        waited: Callable[[float], None] = lambda seconds: None,
        begins: Callable[[K], bool] = lambda key: False,
        spacing: Callable[[K], float] = lambda key: 0.0,
    ) -> None:
        """Make an empty queue.

        Args:
            clock: monotonic seconds.
            jitter: a random number in [0, 1), to keep failing keys apart.
            waited: told of each key that is taken how many seconds it was due before.
            begins: whether the first work on a key begins something that others finish.
            spacing: seconds from when a key is taken to when it comes again because it was added:
                of several changes within that time there is one look. The first comes at once.
        """
        self._waited = waited
        self._clock = clock
        self._jitter = jitter
        self._ready: dict[K, float] = {}
        """Since when; a dict keeps the order and holds each key once."""
        self._new: dict[K, float] = {}
        """As these, but they may wait for what is under way."""
        self._leisure: dict[K, float] = {}
        """As these, but they wait for what is not leisurely."""
        self._since_leisure = 0
        """Keys taken since one of them was."""
        self._changes = deque[float](maxlen=RUSH)
        """When keys were taken last that had changed."""
        self._begins, self._begun = begins, set[K]()
        self._last_begun = float("-inf")
        self._since_begun = 0
        """Keys under way that were taken since."""
        self._working: set[K] = set()
        self._spacing, self._taken = spacing, dict[K, float]()
        self._dirty: set[K] = set()
        self._soon, self._later = Delays[K](), Delays[K]()
        """What comes as soon as it may, and what waits for other work even then."""
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._new) + len(self._leisure)

    @property
    def busy(self) -> bool:
        """Whether a key waits for work that is due, or is worked on."""
        return bool(len(self) or self._working)

    def add(self, key: K, *, within: float = 0.0) -> None:
        """Ask for a key to be worked on because something has changed.

        Args:
            key: of what.
            within: seconds that the change may wait for others, and then for what may not;
                0: as soon as possible.
        """
        now = self._clock()
        wait = self._taken.get(key, -math.inf) + self._spacing(key) - now
        if key in self._ready or key in self._new:
            return
        if within > 0:
            self._later.add(key, now + max(wait, within))
        elif wait > 0 and key not in self._working:
            self._soon.add(key, now + wait)
        else:
            self._add(key, since=now)

    def _add(self, key: K, *, since: float) -> None:
        self._soon.drop(key)
        self._later.drop(key)
        self._leisure.pop(key, None)
        if key in self._working:
            self._dirty.add(key)
        elif self._begins(key) and key not in self._begun:
            self._new.setdefault(key, since)
        else:
            self._ready.setdefault(key, since)

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Ask for a key later; of several such wishes the earliest holds."""
        wishes = self._later if delay_seconds >= LEISURE_SECONDS else self._soon
        wishes.add(key, self._clock() + max(0.0, delay_seconds))

    def seen(self, key: K) -> None:
        """All that a key at work was asked for until now is seen by what begins with it now."""
        if key in self._working:
            self._dirty.discard(key)
            self._soon.drop(key)
            self._later.drop(key)
            self._taken[key] = self._clock()

    def take(self) -> K | None:
        """A key that nobody works on, or None; ``done`` must follow."""
        self._release_due()
        waiting = self._first()
        if not waiting:
            return None
        key, now = next(iter(waiting)), self._clock()
        self._soon.drop(key)
        self._later.drop(key)
        self._since_begun += 1
        self._since_leisure += 1
        if waiting is self._new:
            self._last_begun, self._since_begun = now, 0
        if waiting is self._leisure:
            self._since_leisure = 0
        else:
            self._changes.append(now)
        self._waited(now - waiting.pop(key))
        self._taken[key] = now
        self._working.add(key)
        return key

    def _first(self) -> dict[K, float]:
        """From which the next key comes; empty when there is none."""
        changed = self._first_changed()
        if not self._leisure:
            return changed
        if not changed:
            return self._leisure if self._rush_ends_at() <= self._clock() else {}
        waits = self._clock() - next(iter(self._leisure.values()))
        has_turn = waits >= LEISURELY_SECONDS and self._since_leisure >= SHARE - 1
        return self._leisure if has_turn else changed

    def _rush_ends_at(self) -> float:
        """When what is leisurely, and has waited the longest, need not wait for a rush to end."""
        if len(self._changes) < RUSH:
            return -math.inf
        waited_enough = next(iter(self._leisure.values())) + LEISURELY_SECONDS
        return min(waited_enough, self._changes[0] + RUSH_SECONDS)

    def _first_changed(self) -> dict[K, float]:
        if not self._new:
            return self._ready
        oldest, now = next(iter(self._new.values())), self._clock()
        has_turn = now - oldest >= PATIENCE_SECONDS and now - self._last_begun >= TURN_SECONDS
        has_share = self._since_begun >= max(SHARE, len(self._ready) // CROWD) - 1
        return self._new if has_turn or has_share or not self._ready else self._ready

    def done(self, key: K) -> None:
        """Work on a key has ended."""
        self._working.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def succeeded(self, key: K) -> None:
        """Forget a key's failures; it is under way from now on."""
        self._failures.pop(key, None)
        if self._begins(key):
            self._begun.add(key)

    def forget(self, key: K) -> None:
        """Nothing is under way with a key any more."""
        self._failures.pop(key, None)
        self._begun.discard(key)
        self._taken.pop(key, None)

    def failed(self, key: K) -> float:
        """Ask for a failed key again, later each time; return after how many seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = BACKOFF_BASE_SECONDS * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
        delay = min(delay, BACKOFF_MAX_SECONDS) * (1 + self._jitter() / 4)
        self.add_after(key, delay)
        return delay

    def due_at(self) -> float:
        """When a key can be taken, by the clock; ``-inf``: one can be now, ``inf``: none waits."""
        if self._first():
            return -math.inf
        found = [one for one in (self._soon.first(), self._later.first()) if one is not None]
        if self._leisure:
            found.append(self._rush_ends_at())
        return min(found, default=math.inf)

    def _release_due(self) -> None:
        now = self._clock()
        while (news := self._soon.take(now)) is not None:
            self._add(news[0], since=news[1])
        while (look := self._later.take(now)) is not None:
            self._release(*look)

    def _release(self, key: K, since: float) -> None:
        """A key is due that may wait for others."""
        begins = self._begins(key) and key not in self._begun
        if key in self._working or begins:
            self._add(key, since=since)
        elif key not in self._ready:
            self._leisure.setdefault(key, since)
