"""One read of many runs: what the stores say of each, as it is kept until the next read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.stores import overview
from rl_contracts.stores.clients.deployment import Deployment
from rl_contracts.stores.overview import Overview
from rl_operator.state.progress import Reach, Reading, reach, reached
from rl_operator.stores.connections import Connections, StoresOf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswer:
    """What one read says of one run. Documents stay BSON: parsed they take 5 times the memory."""

    at: float
    """Monotonic seconds when the read began."""
    place: str
    """Namespace, Secret and version; empty without usable stores."""
    store: Reach
    bucket: Reach
    now: float = 0.0
    """The store's clock."""
    overview: Overview | None = None
    """None if the store did not answer."""

    @property
    def is_starting(self) -> bool:
        """Whether no trainer has taken the run yet."""
        return self.overview is not None and not self.overview.stored_run

    def digest(self) -> tuple[object, ...]:
        """Equal as long as nothing has changed but heartbeats, what moves with them, and clocks."""
        documents = self.overview.digest(self.now) if self.overview is not None else b""
        reachable = (self.store.status, self.store.reason, self.bucket.status, self.bucket.reason)
        return self.place, *reachable, documents

    def reading(self, *, counted: Reach, backlog: int) -> Reading:
        """The reading with the number of open tasks; raises what parsing the documents raises."""
        if self.overview is None:
            return Reading(store=self.store, bucket=self.bucket)
        registrations = self.overview.samplers()
        return Reading(
            store=self.store if counted.status == "True" else counted,
            bucket=self.bucket,
            run=self.overview.run(),
            samplers=tuple(sampler for sampler in registrations if sampler.is_alive(self.now)),
            registrations=registrations,
            backlog=backlog,
            now=self.now,
        )


def ask(
    connections: Connections, found: StoresOf, runs: Sequence[str], *, at: float
) -> dict[str, RunAnswer]:
    """Read runs with two queries for all of them; never raises for a store that is down."""
    if found.stores is None:
        assert found.refusal is not None
        unknown = Reach("Unknown", found.refusal.reason, str(found.refusal))
        refused = RunAnswer(at=at, place=found.place, store=unknown, bucket=unknown)
        return dict.fromkeys(runs, refused)
    mongo, times, overviews = found.stores.mongo, list[float](), dict[str, Overview]()
    kinds: list[Deployment] = []

    def read() -> None:
        times.append(mongo.now())
        kinds.append(mongo.deployment())
        overviews.update(overview.read_runs(mongo, runs))

    bucket, store = connections.bucket(found.stores, now=at), reach(read)
    if store.status == "True":
        store = reached(kinds[0])
    now = times[-1] if times else 0.0
    return {
        run: RunAnswer(
            at=at, place=found.place, store=store, bucket=bucket, now=now, overview=known
        )
        for run, known in ((run, overviews.get(run)) for run in runs)
    }
