"""Carries plans out, and only where there is something to do."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rl_operator.cache.cached_reader import KEPT_IN_PACE
from rl_operator.kube.api_errors import ApiConflictError, ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, Key
from rl_operator.kube.metadata import Child
from rl_operator.kube.names import APPLIED_ANNOTATION
from rl_operator.kube.perform import perform
from rl_operator.kube.plan import Action, Conflict, Create, Delete, Plan, Wanted, plan
from rl_operator.state import observe

log = logging.getLogger(__name__)

Place = tuple[str, str, str]
"""Namespace, kind and name."""

READ_BY_NAME = (CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY)
"""Kinds that are not listed: each look at one is a request of its own."""
KEPT_SIGHTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was done, and what stood in the way."""

    done: tuple[Action, ...] = ()
    stall: Stall | None = None
    blocked_reason: str = ""
    """Why something could not be made for now."""


class _ThereError(Exception):
    """What was to be made is there already."""


class Applier:
    """Makes the cluster hold what is wanted."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        trust_seconds: float = 0.0,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Prepare.

        Args:
            cluster: where.
            clock: monotonic seconds.
            trust_seconds: an object of a kind that is not listed is read again after so long only,
                where there are no more than ``KEPT_IN_PACE`` owners of such.
            jitter: a random number in [0, 1): what a former process has left in order is read
                somewhere within that time.
        """
        self._cluster = cluster
        self._clock, self._trust_seconds, self._jitter = clock, trust_seconds, jitter
        self._seen: dict[Place, tuple[str, float]] = {}
        """Digest of what was last in order in a place, and since when it counts as seen."""
        self._new: set[Key] = set()
        """Objects that this process has heard of from their creation on."""
        self._met: set[Key] = set()
        """Objects some of whose children were there already when they were to be made."""
        self._looked_at: set[Key] = set()
        """Objects of which this process has made, or compared, what there ought to be."""
        self._left_in_order: dict[Key, float] = {}
        """Of these, what a former process has left: since when it counts as in order, until this
        process finds it so."""
        self._rests: dict[Key, tuple[bytes, float]] = {}
        """Mark of what each was made from, and since when it rests."""

    def rests(self, key: Key, made_from: tuple[object, ...]) -> bool:
        """Whether all was in order, not long ago, for these very declarations and objects."""
        return self._holds(key, _mark(made_from))

    def _holds(self, key: Key, mark: bytes) -> bool:
        found, at = self._rests.get(key, (b"", 0.0))
        return found == mark and self._clock() - at < self._trusted_seconds()

    def rested(self, key: Key, made_from: tuple[object, ...]) -> None:
        """Note that there was nothing to do; ``made_from`` says from what that was seen.

        While it rests nobody has looked, so that saying it again makes the rest no longer.
        """
        mark = _mark(made_from)
        if not self._holds(key, mark):
            self._rests[key] = (mark, self._left_in_order.pop(key, self._clock()))

    def rest_seconds(self, key: Key) -> float:
        """For how long there will be nothing to do, as long as nothing changes; 0: there may be."""
        if key not in self._rests:
            return 0.0
        _, at = self._rests[key]
        return max(0.0, at + self._trusted_seconds() - self._clock())

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._rests.pop(key, None)
        self._looked_at.discard(key)
        self._left_in_order.pop(key, None)
        self._met.discard(key)
        self._new.discard(key)

    def make(
        self,
        key: Key,
        *,
        wanted: Sequence[Wanted],
        unwanted: Sequence[Child],
        observed: Mapping[tuple[str, str], Child],
        owner_uid: str,
        new: bool = False,
        settled: bool = False,
    ) -> Made:
        """Plan and do; an object that the API server refuses is told, not raised.

        With ``new`` nobody can have made anything for the owner yet. With ``settled`` its status
        says that all of this was made: where this process has not looked at it before, and nothing
        that was observed differs, kinds that are not listed are read by and by, as they are later.

        Raises:
            ApiConflictError: an object has changed since it was observed.
        """
        if new:
            self._new.add(key)
        if settled and self._takes_over(key, wanted, observed=observed, owner_uid=owner_uid):
            self._saw(key, wanted, since=self._left_in_order[key])
            wanted = [one for one in wanted if one.kind in READ_BY_NAME]  # the others were compared
        self._looked_at.add(key)
        wanted = [one for one in wanted if not self._trusts(key, one)]
        done: list[Action] = []
        while True:
            there = {**observed, **self._asked_for(key, wanted, observed)}
            todo = plan(wanted, unwanted, observed=there, owner_uid=owner_uid)
            try:
                stall = self._carry_out(key, todo, done)
            except _ThereError:
                self._met.add(key)
                continue
            if stall is None and not todo.conflicts:
                self._saw(key, wanted)
            return Made(done=tuple(done), stall=stall or _taken(todo.conflicts))

    def _takes_over(
        self,
        key: Key,
        wanted: Sequence[Wanted],
        *,
        observed: Mapping[tuple[str, str], Child],
        owner_uid: str,
    ) -> bool:
        """Whether a former process has left everything in order, as far as watches tell."""
        if key in self._looked_at or key in self._new:
            return False
        told = [one for one in wanted if one.kind not in READ_BY_NAME]
        if plan(told, [], observed=observed, owner_uid=owner_uid) != Plan():
            return False
        self._left_in_order[key] = self._clock() - self._jitter() * self._trusted_seconds()
        return True

    def _asked_for(
        self, key: Key, wanted: Sequence[Wanted], observed: Mapping[tuple[str, str], Child]
    ) -> dict[tuple[str, str], Child]:
        """Wanted objects that nobody tells of, read by name where they may be there."""
        absent = [
            (one.kind, one.manifest["metadata"]["name"])
            for one in wanted
            if one.reference not in observed and self._may_be_there(key, one)
        ]
        found = observe.named(self._cluster, key, absent)
        return {(one.kind, one.meta.name): one for one in found}

    def _may_be_there(self, key: Key, wanted: Wanted) -> bool:
        """Whether to ask first: a new owner has nothing, and of watched kinds watches tell."""
        if key in self._met:
            return True
        known = key not in self._new or _place(key, wanted) in self._seen
        return wanted.kind in READ_BY_NAME and known

    def _carry_out(self, key: Key, todo: Plan, done: list[Action]) -> Stall | None:
        for action in todo.actions:
            if isinstance(action, Delete):  # before: of one that fails nobody knows what it did
                self._seen.pop((key.namespace, action.kind.name, action.name), None)
            try:
                perform(self._cluster, key.namespace, action)
            except ApiRefusedError as error:
                message = f"The API server refused to {action}: {error.message}"
                return Stall(reason="ChildRefused", message=message)
            except ApiConflictError:
                if key in self._met or not isinstance(action, Create):
                    raise
                raise _ThereError from None
            done.append(action)
        return None

    def _trusts(self, key: Key, wanted: Wanted) -> bool:
        digest, at = self._seen.get(_place(key, wanted), ("", -math.inf))
        return digest == _digest(wanted) and self._clock() - at < self._trusted_seconds()

    def _trusted_seconds(self) -> float:
        """For how long: the more there is, the longer, so that there are no more reads for it."""
        return self._trust_seconds * max(1.0, len(self._rests) / KEPT_IN_PACE)

    def _saw(self, key: Key, wanted: Sequence[Wanted], *, since: float | None = None) -> None:
        """Note what is in order now, of the kinds that are read by name."""
        now = self._clock() if since is None else since
        if len(self._seen) > KEPT_SIGHTS:
            oldest = now - self._trusted_seconds()
            self._seen = {one: seen for one, seen in self._seen.items() if seen[1] > oldest}
        self._seen |= {
            _place(key, one): (_digest(one), now) for one in wanted if one.kind in READ_BY_NAME
        }


def _mark(made_from: tuple[object, ...]) -> bytes:
    """Tells any two of these apart, and takes a hundredth of their memory."""
    return hashlib.blake2b(repr(made_from).encode(), digest_size=16).digest()


def _place(key: Key, wanted: Wanted) -> Place:
    return key.namespace, wanted.kind.name, wanted.manifest["metadata"]["name"]


def _digest(wanted: Wanted) -> str:
    return str(wanted.manifest["metadata"].get("annotations", {}).get(APPLIED_ANNOTATION, ""))


def _taken(conflicts: Sequence[Conflict]) -> Stall | None:
    lasting = [conflict for conflict in conflicts if not conflict.going]
    if not lasting:
        return None
    names = ", ".join(f"{one.kind} {one.name}" for one in lasting)
    message = (
        f"Others own {names}, a name that this job needs. Delete it, or name the job otherwise."
    )
    return Stall(reason="NameTaken", message=message)
