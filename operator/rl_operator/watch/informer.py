"""Feeds the store with what watches and our own writes tell, and asks for looks at what is news."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from rl_operator.cache.object_cache import Store
from rl_operator.cache.projection import BY_NAME, KINDS
from rl_operator.kube.kinds import DEPLOYMENT, PYTORCH_JOB, RLJOB, SAMPLER_POOL, Key, Kind
from rl_operator.watch.event_priority import AT_ONCE, may_wait
from rl_operator.watch.watches import keys_of

OURS = (RLJOB, SAMPLER_POOL)
MAKER = {SAMPLER_POOL: RLJOB, PYTORCH_JOB: RLJOB, DEPLOYMENT: SAMPLER_POOL}
"""Whose look makes an object, and goes on with what it has made."""


class Feed:
    """What is told goes into the store first and is looked at then. For any thread."""

    def __init__(
        self,
        store: Store,
        *,
        look: Callable[[Key, float], None],
        born: Callable[[Key], None] = lambda key: None,
        listed: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """Prepare.

        Args:
            store: of what is known.
            look: asks for a look at an object of ours, within some seconds.
            born: told of an object of ours that was just made, before it is looked at.
            listed: told of one that was in a list, before it is looked at.
        """
        self._store, self._look = store, look
        self._born, self._listed = born, listed

    def watched(self, change: str | None, raw: Mapping[str, Any]) -> None:
        """A watch tells of an object: ``DELETED``, or anything else of one that is there.

        A list tells of one without a change.
        """
        meta, kind = raw["metadata"], BY_NAME[raw["kind"]]
        place = (kind, meta["namespace"], meta["name"])
        if change == "DELETED":
            if self._store.end(*place, uid=meta["uid"], version=int(meta["resourceVersion"])):
                self._look_at(raw)
            return
        before = self._before(*place, version=int(meta["resourceVersion"]))
        if not self._store.put(kind, raw, in_turn=True):
            return
        if change == "ADDED":
            self._note_birth(kind, raw)
        elif change is None and kind in OURS:
            self._listed(Key(kind.name, meta["namespace"], meta["name"]))
        for key in keys_of(raw):
            self._look(key, may_wait(key, before, raw))

    def _before(
        self, kind: Kind, namespace: str, name: str, *, version: int
    ) -> Mapping[str, Any] | None:
        """An object as it was known, where that decides how soon its change is looked at.

        The echo of a version that is known is no change.
        """
        if kind not in OURS or self._store.version(kind, namespace, name) >= version:
            return None
        return self._store.get(kind, namespace, name)

    def _look_at(self, raw: Mapping[str, Any]) -> None:
        for key in keys_of(raw):
            self._look(key, AT_ONCE)

    def listed_all(self, kind: str, namespace: str, there: Collection[str], version: int) -> None:
        """A list has ended: what it did not show, and no watch has told the end of, has gone."""
        for raw in self._store.keep(BY_NAME[kind], namespace, there, version=version):
            self._look_at(raw)

    def stored(self, kind: Kind, raw: Mapping[str, Any], *, subresource: str) -> None:
        """We have written an object: others than the look that wrote it are to know.

        That one knows of a status, and of what it has just made.
        """
        meta = raw["metadata"]
        place = meta["namespace"], meta["name"]
        is_new = self._store.seen(kind, *place) is None
        before = self._before(kind, *place, version=int(meta["resourceVersion"]))
        if kind not in KINDS or not self._store.put(kind, raw):
            return
        self._note_birth(kind, raw)
        own, maker = Key(kind.name, *place), MAKER.get(kind) if is_new else None
        for key in keys_of(raw):
            knows = key == own and subresource == "status"
            if not knows and (maker is None or key.kind != maker.name):
                self._look(key, may_wait(key, before, raw))

    def _note_birth(self, kind: Kind, raw: Mapping[str, Any]) -> None:
        """One of ours of which no generation was observed was never looked at."""
        if kind in OURS and raw.get("status", {}).get("observedGeneration", 0) < 1:
            meta = raw["metadata"]
            self._born(Key(kind.name, meta["namespace"], meta["name"]))

    def ended(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """We have deleted an object."""
        if kind not in KINDS:
            return
        raw = self._store.get(kind, namespace, name)
        if self._store.end(kind, namespace, name, uid=uid) and raw is not None:
            self._look_at(raw)
