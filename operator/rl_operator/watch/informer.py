"""The informer: keeps the object cache up to date and enqueues what a change concerns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from rl_operator.cache.object_cache import ObjectCache
from rl_operator.cache.projection import BY_NAME, KINDS
from rl_operator.kube.kinds import DEPLOYMENT, PYTORCH_JOB, RLJOB, SAMPLER_POOL, Key, Kind
from rl_operator.watch.watches import keys_of

OURS = (RLJOB, SAMPLER_POOL)
CREATED_BY = {SAMPLER_POOL: RLJOB, PYTORCH_JOB: RLJOB, DEPLOYMENT: SAMPLER_POOL}
"""Whose reconcile creates an object of a kind, and already knows of it."""


class Informer:
    """Puts an object into the cache first and enqueues its keys then. Safe for any thread."""

    def __init__(
        self,
        store: ObjectCache,
        *,
        enqueue: Callable[[Key], None],
        created: Callable[[Key], None] = lambda key: None,
        listed: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """Make an informer.

        Args:
            store: the object cache.
            enqueue: asks for a reconcile of a job or pool.
            created: called with a job or pool that was just created, before it is enqueued.
            listed: called with a job or pool that a list showed, before it is enqueued.
        """
        self._store, self._enqueue = store, enqueue
        self._created, self._listed = created, listed

    def observed(self, change: str | None, raw: Mapping[str, Any]) -> None:
        """A list or a watch shows an object.

        Args:
            change: ``ADDED``, ``MODIFIED`` or ``DELETED``; None: a list shows the object.
            raw: the object.
        """
        meta, kind = raw["metadata"], BY_NAME[raw["kind"]]
        if change == "DELETED":
            place, version = (kind, meta["namespace"], meta["name"]), int(meta["resourceVersion"])
            if self._store.end(*place, uid=meta["uid"], version=version):
                self._enqueue_all(raw)
            return
        if not self._store.put(kind, raw, in_turn=True):
            return
        if change == "ADDED":
            self._note_creation(kind, raw)
        elif change is None and kind in OURS:
            self._listed(Key(kind.name, meta["namespace"], meta["name"]))
        self._enqueue_all(raw)

    def list_ended(self, kind: str, namespace: str, uids: Collection[str], version: int) -> None:
        """A list is complete: cached objects that it does not show, and that are older, are gone.

        Args:
            kind: name of the listed kind.
            namespace: the listed namespace; empty: all of them.
            uids: of all objects in the list.
            version: resource version of the list.
        """
        for raw in self._store.keep(BY_NAME[kind], namespace, uids, version=version):
            self._enqueue_all(raw)

    def stored(self, kind: Kind, raw: Mapping[str, Any], *, subresource: str) -> None:
        """We have written an object. Enqueues all but the reconcile that has written it.

        That one knows the status it wrote, and the objects it has just created.
        """
        meta = raw["metadata"]
        place = meta["namespace"], meta["name"]
        is_new = self._store.seen(kind, *place) is None
        if kind not in KINDS or not self._store.put(kind, raw):
            return
        self._note_creation(kind, raw)
        own, creator = Key(kind.name, *place), CREATED_BY.get(kind) if is_new else None
        for key in keys_of(raw):
            wrote_status = key == own and subresource == "status"
            if not wrote_status and (creator is None or key.kind != creator.name):
                self._enqueue(key)

    def ended(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """We have deleted an object, or it was gone already."""
        if kind not in KINDS:
            return
        raw = self._store.get(kind, namespace, name)
        if self._store.end(kind, namespace, name, uid=uid) and raw is not None:
            self._enqueue_all(raw)

    def _enqueue_all(self, raw: Mapping[str, Any]) -> None:
        for key in keys_of(raw):
            self._enqueue(key)

    def _note_creation(self, kind: Kind, raw: Mapping[str, Any]) -> None:
        """A job or pool without an observed generation was never reconciled."""
        if kind in OURS and raw.get("status", {}).get("observedGeneration", 0) < 1:
            meta = raw["metadata"]
            self._created(Key(kind.name, meta["namespace"], meta["name"]))
