"""One life of the operator's reconcilers, in the process of a test."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rl_operator.apply.applier import Applier
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.cache.cached_reader import CachedReader
from rl_operator.cache.object_cache import ObjectCache
from rl_operator.jobs.inputs import InputsReader
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.gpu_nodes import GpuNodes
from rl_operator.kube.kinds import Key
from rl_operator.kube.settings import Images, JobRules
from rl_operator.kueue.queueing import Queueing
from rl_operator.pools.scaling import PoolScaler
from rl_operator.process.events import EventRecorder
from rl_operator.reconcile import JobReconciler
from rl_operator.reconcile_pool import PoolReconciler
from rl_operator.state.progress import Reading
from rl_operator.state.recent_warnings import RecentWarnings
from rl_operator.state.start_troubles import StartTroubles
from rl_operator.stores.adoption import Adoption
from rl_operator.stores.claims import Claims
from rl_operator.stores.deletions import Deletions
from rl_operator.stores.preflight import Preflight
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_poll import RunProgressPoller
from rl_operator.validation.dry_run import DryRun
from rl_operator.watch.informer import Informer

IMAGES = Images(
    operator="o:1", trainer="t:1", sampler="s:1", engine="e:1", pull_policy="IfNotPresent"
)
RULES = JobRules(service_accounts=("buckets",))
STARTING_SECONDS = 0.01
"""Between two reads of something that is just starting."""
RETRY_SECONDS = 0.2


class CrashError(Exception):
    """The operator process dies here."""


@dataclass
class Writes:
    """Counts writes, and kills the operator after some of them."""

    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Writes that the API server has accepted, by kind."""
    crash_after: int | None = None

    def may_write(self) -> None:
        if self.crash_after is not None and self.count >= self.crash_after:
            raise CrashError
        self.count += 1

    def accepted(self, verb: str, kind: str) -> None:
        self.kinds[kind] += 1


class FreshRunProgress(RunProgressPoller):
    """Reads for every reconcile, so that a test need not wait for the next poll."""

    def read(self, key: Key, run: str, secret: str, *, fresh: bool = True) -> Reading:
        return super().read(key, run, secret, fresh=True)


class Operator:
    """One life of the operator process."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        system: str,
        rules: JobRules = RULES,
        trust_seconds: float = 0.0,
        cache_seconds: float = 0.0,
        fresh_readings: bool = True,
    ) -> None:
        self.skew = 0.0
        store = ObjectCache()
        cluster.report_writes_to(Informer(store, enqueue=lambda key: None))
        readers = self.readers = Readers(
            cluster, IMAGES, system=system, clock=time.monotonic, pod_read_seconds=STARTING_SECONDS
        )
        poller = FreshRunProgress if fresh_readings else RunProgressPoller
        self.progress = poller(readers, enqueue=lambda _: None, clock=time.monotonic, seconds=1.0)
        self.preflight = Preflight(
            readers,
            clock=time.monotonic,
            enqueue=lambda _: None,
            retry_seconds=RETRY_SECONDS,
            again_seconds=STARTING_SECONDS,
        )
        self.deletions = Deletions(readers, enqueue=lambda _: None)
        reader = CachedReader(cluster, clock=time.monotonic, seconds=cache_seconds, store=store)
        shared: dict[str, Any] = {
            "cluster": cluster,
            "applier": Applier(cluster, trust_seconds=trust_seconds),
            "statuses": StatusWriter(cluster, clock=time.monotonic, seconds=0.0),
            "troubles": StartTroubles(
                warnings=RecentWarnings(cluster, clock=time.monotonic, seconds=0.0), now=self.now
            ),
            "events": EventRecorder(cluster, identity="test", now=time.time),
            "images": IMAGES,
            "progress_seconds": 1.0,
            "reader": reader,
            "now": self.now,
        }
        inputs = InputsReader(
            deletions=self.deletions,
            progress=self.progress,
            preflight=self.preflight,
            dry_run=DryRun(cluster=cluster, images=IMAGES, clock=self.clock),
            adoption=Adoption(cluster=cluster, claims=Claims(cluster=cluster)),
            gpus=GpuNodes(cluster, clock=self.clock),
            now=self.now,
            rules=rules,
        )
        queueing = Queueing(cluster=cluster, images=IMAGES, enabled=True, now=self.now, rules=rules)
        self.jobs = JobReconciler(
            inputs=inputs,
            queueing=queueing,
            enqueue=lambda _: None,
            **shared,
        )
        self.pools = PoolReconciler(
            progress=self.progress,
            clock=self.clock,
            scaler=PoolScaler(cluster=cluster, now=self.now),
            rules=rules,
            **shared,
        )

    def now(self) -> float:
        return time.time() + self.skew

    def clock(self) -> float:
        return time.monotonic() + self.skew

    def close(self) -> None:
        self.progress.close()
        self.preflight.close()
        self.deletions.close()
