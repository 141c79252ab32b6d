"""Applies plans to the cluster, with reads and writes only where something may differ."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rl_operator.cache.cached_reader import KEPT_IN_PACE
from rl_operator.kube.api_errors import ApiConflictError, ApiHookError, ApiRefusedError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SANDBOX_TEMPLATE,
    SERVICE,
    Key,
    Kind,
)
from rl_operator.kube.metadata import Child
from rl_operator.kube.names import APPLIED_ANNOTATION
from rl_operator.kube.perform import perform
from rl_operator.kube.plan import Action, Apply, Conflict, Delete, Plan, Wanted, plan
from rl_operator.state import observe

Reference = tuple[str, str]
"""Kind and name."""
UNWATCHED = (CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, SERVICE, SANDBOX_TEMPLATE)
"""Kinds that the operator does not list or watch, for lack of rights: each read is a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was done, and what stands in the way of the rest."""

    done: tuple[Action, ...] = ()
    stall: Stall | None = None
    outage: ApiHookError | None = None
    """An object cannot be written for now, because a webhook does not answer."""

    @property
    def hindered(self) -> bool:
        """Whether anything stands in the way of the rest."""
        return self.stall is not None or self.outage is not None

    @property
    def blocked_reason(self) -> str:
        """Why an object cannot be written for now; empty where no webhook prevents it."""
        if self.outage is None:
            return ""
        kind, name = self.outage.doing.partition("/namespaces/")[2].split("/")[1:3]
        message = self.outage.message
        return f"{kind}/{name} cannot be written for now, and is tried again: {message}"

    @property
    def hindrance(self) -> str:
        """What stands in the way of the rest; empty where nothing does."""
        return self.stall.message if self.stall is not None else self.blocked_reason

    @classmethod
    def refused(cls, doing: object, error: ApiRefusedError) -> Made:
        """Nothing was done, because the API server refuses it."""
        return cls(stall=_refused(doing, error))

    def then(self, later: Made) -> Made:
        """This with what was done later; what stands in the way of this comes first."""
        return Made(
            done=(*self.done, *later.done),
            stall=self.stall or later.stall,
            outage=self.outage or later.outage,
        )


class Applier:
    """Makes the cluster hold the wanted objects. Safe for any thread, one per key at a time.

    What it remembers are reads that need not be repeated: without that, each of the dozens of
    reconciles of a start would render all objects and read four of them, and so would each poll of
    5,000 jobs at rest.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        trust_seconds: float = 0.0,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Make an applier.

        Args:
            cluster: where to apply.
            clock: monotonic seconds.
            trust_seconds: how long an object of an unwatched kind counts as unchanged; longer in
                proportion if there are more than ``KEPT_IN_PACE`` owners of such objects.
            jitter: random number in [0, 1): spreads reads that would all be repeated at once over
                half of the time.
        """
        self._cluster = cluster
        self._clock, self._trust_seconds, self._jitter = clock, trust_seconds, jitter
        self._verified: dict[Key, dict[Reference, tuple[str, float]]] = {}
        """By owner, of its objects of unwatched kinds: digest last seen, and when."""
        self._at_rest: dict[Key, tuple[bytes, float]] = {}
        """By owner: mark of the inputs for which nothing was left to do, and when."""
        self._existing: set[Key] = set()
        """Owners whose POST met an existing object, which no watch had shown: all are read next."""

    def rests(self, key: Key, inputs: tuple[object, ...]) -> bool:
        """Whether, not long ago, nothing was left to do for these very inputs."""
        mark, _ = self._at_rest.get(key, (b"", 0.0))
        return mark == _mark(inputs) and self.rest_seconds(key) > 0

    def rested(self, key: Key, inputs: tuple[object, ...]) -> None:
        """Note that nothing is left to do for these inputs until a read has to be repeated.

        Noting it again while it rests does not prolong the rest: nothing was read meanwhile.
        """
        if not self.rests(key, inputs):
            seen = (at for _, at in self._verified.get(key, {}).values())
            self._at_rest[key] = (_mark(inputs), min(seen, default=self._clock()))

    def rest_seconds(self, key: Key) -> float:
        """For how long nothing is left to do unless an input changes; 0: something may be."""
        if key not in self._at_rest:
            return 0.0
        _, at = self._at_rest[key]
        return max(0.0, at + self._trusted_seconds() - self._clock())

    def forget(self, key: Key) -> None:
        """Drop what is known of an owner that is gone."""
        self._at_rest.pop(key, None)
        self._verified.pop(key, None)
        self._existing.discard(key)

    def make(
        self,
        key: Key,
        *,
        wanted: Sequence[Wanted],
        unwanted: Sequence[Child],
        observed: Mapping[Reference, Child],
        owner_uid: str,
        begun: bool = False,
        settled: bool = False,
    ) -> Made:
        """Plan and perform. What the API server does not admit is returned, not raised.

        Args:
            key: the owner.
            wanted: objects that should exist, in the order in which they are created.
            unwanted: objects that should be deleted.
            observed: objects of watched kinds that exist.
            owner_uid: uid of the owner.
            begun: the owner has a status, so some of these objects may have been made before.
            settled: the owner's status says that all of this was made. Objects of unwatched kinds
                then count as seen when this process first meets them: a new process would read
                20,000 of 5,000 jobs before it does anything else.

        Raises:
            ApiConflictError: an object was created or changed since it was observed.
        """
        self._keep(key, wanted, settled=settled)
        wanted = [each for each in wanted if not self._is_trusted(key, each)]
        begun = bool(begun or observed or self._verified[key])
        existing = {**observed, **self._read_absent(key, wanted, observed, begun=begun)}
        todo = plan(wanted, unwanted, observed=existing, owner_uid=owner_uid)
        made = self._perform(key, todo)
        if not made.hindered and not todo.conflicts:
            self._verified[key] |= self._as_seen_now(wanted)
            self._existing.discard(key)
        return replace(made, stall=made.stall or _name_taken(todo.conflicts))

    def _keep(self, key: Key, wanted: Sequence[Wanted], *, settled: bool) -> None:
        """Keep what is known of the wanted objects alone, and make a beginning for a new owner."""
        known = self._verified.get(key)
        if known is None:
            known = self._as_seen_now(wanted) if settled else {}
        if wanted:
            references = {each.reference for each in wanted}
            known = {place: seen for place, seen in known.items() if place in references}
        self._verified[key] = known

    def _as_seen_now(self, wanted: Sequence[Wanted]) -> dict[Reference, tuple[str, float]]:
        at = self._clock() - self._jitter() / 2 * self._trusted_seconds()
        return {each.reference: (_digest(each), at) for each in wanted if each.kind in UNWATCHED}

    def _is_trusted(self, key: Key, wanted: Wanted) -> bool:
        digest, at = self._verified[key].get(wanted.reference, ("", -math.inf))
        return digest == _digest(wanted) and self._clock() - at < self._trusted_seconds()

    def _read_absent(
        self,
        key: Key,
        wanted: Sequence[Wanted],
        observed: Mapping[Reference, Child],
        *,
        begun: bool,
    ) -> dict[Reference, Child]:
        """Wanted objects that were not observed, read by name where they may exist.

        Watches show only objects with our labels, and none of the unwatched kinds. The rest is
        created without a read: that fails where the name is taken, and then all are read.
        """
        absent = [
            (each.kind, each.manifest["metadata"]["name"])
            for each in wanted
            if each.reference not in observed
            and (key in self._existing or (begun and each.kind in UNWATCHED))
        ]
        children = observe.named(self._cluster, key, absent)
        return {(child.kind, child.meta.name): child for child in children}

    def _perform(self, key: Key, todo: Plan) -> Made:
        """Perform what can be done; say what was done, and why the first action failed that did.

        After a failed write only pods are stopped: all else may rely on it. After a failed deletion
        everything goes on. A webhook that does not answer is asked once for each verb and kind: a
        request waits for its timeout.
        """
        done, failed = list[Action](), Made()
        blocked, silent = False, set[tuple[type[Action], Kind]]()
        for action in todo.actions:
            stops = isinstance(action, Apply) and action.stops
            if (blocked and not stops) or (type(action), action.kind) in silent:
                continue
            error = self._try(key, action)
            if error is None:
                done.append(action)
                continue
            blocked = blocked or not isinstance(action, Delete)
            if isinstance(error, ApiHookError):
                silent.add((type(action), action.kind))
                cause = Made(outage=error)
            else:
                cause = Made.refused(action, error)
            failed = failed if failed.hindered else cause
        return replace(failed, done=tuple(done))

    def _try(self, key: Key, action: Action) -> ApiRefusedError | ApiHookError | None:
        """Perform an action; return why it was not admitted, if it was not."""
        if isinstance(action, Delete):  # before it: a failed request may have deleted it
            self._verified[key].pop((action.kind.name, action.name), None)
        try:
            perform(self._cluster, key.namespace, action)
        except (ApiRefusedError, ApiHookError) as error:
            return error
        except ApiConflictError:
            self._existing.add(key)
            raise
        return None

    def _trusted_seconds(self) -> float:
        return self._trust_seconds * max(1.0, len(self._at_rest) / KEPT_IN_PACE)


def _refused(doing: object, error: ApiRefusedError) -> Stall:
    message = f"The API server refused to {doing}: {error.message}"
    return Stall(reason="ChildRefused", message=message)


def _mark(inputs: tuple[object, ...]) -> bytes:
    """Differs for any two inputs, in a hundredth of their memory."""
    return hashlib.blake2b(repr(inputs).encode(), digest_size=16).digest()


def _digest(wanted: Wanted) -> str:
    return str(wanted.manifest["metadata"].get("annotations", {}).get(APPLIED_ANNOTATION, ""))


def _name_taken(conflicts: Sequence[Conflict]) -> Stall | None:
    lasting = [conflict for conflict in conflicts if not conflict.deleting]
    if not lasting:
        return None
    names = ", ".join(f"{conflict.kind} {conflict.name}" for conflict in lasting)
    message = (
        f"Another owner has {names}, a name that this job needs. Delete it, or rename the job."
    )
    return Stall(reason="NameTaken", message=message)
