"""Builds the reconcilers from their parts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rl_operator.apply.applier import Applier
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.cache.cached_reader import REPAIR_SECONDS, CachedReader
from rl_operator.jobs.inputs import InputsReader
from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.gpu_nodes import GpuNodes
from rl_operator.kube.kinds import Key
from rl_operator.kube.settings import Settings
from rl_operator.kueue.queueing import Queueing
from rl_operator.pools.scaling import PoolScaler
from rl_operator.process.event_queue import EventQueue
from rl_operator.process.events import EventRecorder
from rl_operator.process.worker import Reconcile
from rl_operator.reconcile import JobReconciler
from rl_operator.reconcile_pool import PoolReconciler
from rl_operator.state.recent_warnings import RecentWarnings
from rl_operator.state.start_troubles import StartTroubles
from rl_operator.stores.adoption import Adoption
from rl_operator.stores.claims import Claims
from rl_operator.stores.deletions import Deletions
from rl_operator.stores.preflight import Preflight
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_data import RunData
from rl_operator.stores.run_poll import RunProgress, RunProgressPoller
from rl_operator.validation.dry_run import DryRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcilers:
    """The reconcilers by the name of their kind."""

    by_kind: Mapping[str, Reconcile]
    run_data: RunData
    """Answers viewers."""
    close: Callable[[], None]
    """Stops the threads that ask readers; call it once no reconciler runs."""


def reconcilers(
    cluster: Cluster,
    settings: Settings,
    *,
    reader: CachedReader,
    enqueue: Callable[[Key], None],
    events: EventQueue,
    now: Callable[[], float],
) -> Reconcilers:
    """Build the reconcilers of RLJob and SamplerPool.

    Args:
        cluster: writes, as the leader only.
        settings: settings of the process.
        reader: reads the cluster through the object cache.
        enqueue: requests a reconcile of an object.
        events: the queue of Events to post.
        now: seconds since 1970, as the API server counts them.
    """
    readers = Readers(cluster, settings.images, system=settings.namespace, clock=time.monotonic)
    progress = RunProgressPoller(
        readers, enqueue=enqueue, clock=time.monotonic, seconds=settings.progress_seconds
    )
    progress.start()
    readers.start(settings.watch_namespaces)
    applier = Applier(cluster, trust_seconds=REPAIR_SECONDS, jitter=random.random)
    statuses = StatusWriter(cluster, clock=time.monotonic, seconds=settings.progress_seconds)
    recorder = EventRecorder(
        cluster, identity=settings.identity, now=now, submit=events.put, dropped=events.drop
    )
    troubles = StartTroubles(warnings=RecentWarnings(cluster, clock=time.monotonic), now=now)
    jobs = JobReconciler(
        cluster=cluster,
        applier=applier,
        statuses=statuses,
        inputs=_inputs(cluster, settings, readers, progress, enqueue=enqueue, now=now),
        queueing=Queueing(
            cluster=cluster,
            images=settings.images,
            enabled=settings.kueue,
            now=now,
            rules=settings.rules,
        ),
        troubles=troubles,
        events=recorder,
        images=settings.images,
        progress_seconds=settings.progress_seconds,
        reader=reader,
        enqueue=enqueue,
        now=now,
    )
    pools = PoolReconciler(
        cluster=cluster,
        applier=applier,
        statuses=statuses,
        progress=progress,
        troubles=troubles,
        events=recorder,
        images=settings.images,
        progress_seconds=settings.progress_seconds,
        reader=reader,
        now=now,
        clock=time.monotonic,
        scaler=PoolScaler(cluster=cluster, now=now),
        rules=settings.rules,
    )
    by_kind = {
        kinds.RLJOB.name: reader.guarded(jobs.reconcile),
        kinds.SAMPLER_POOL.name: reader.guarded(pools.reconcile),
    }

    def close() -> None:
        progress.close()
        readers.close()

    run_data = RunData(cluster, readers, clock=time.monotonic)
    return Reconcilers(by_kind=by_kind, run_data=run_data, close=close)


def _inputs(
    cluster: Cluster,
    settings: Settings,
    readers: Readers,
    progress: RunProgress,
    *,
    enqueue: Callable[[Key], None],
    now: Callable[[], float],
) -> InputsReader:
    return InputsReader(
        deletions=Deletions(readers, enqueue=enqueue),
        progress=progress,
        preflight=Preflight(readers, clock=time.monotonic, enqueue=enqueue),
        dry_run=DryRun(cluster=cluster, images=settings.images, clock=time.monotonic),
        adoption=Adoption(cluster=cluster, claims=Claims(cluster=cluster)),
        gpus=GpuNodes(cluster, clock=time.monotonic),
        now=now,
        rules=settings.rules,
    )
