"""One rank's shards: the snapshot that waits, the one being published, and the last published."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Executor, ThreadPoolExecutor

from rl_contracts.spec.training.training import Precision
from rl_trainer.distributed.rank_commands import SnapshotShard
from rl_trainer.distributed.world import World
from rl_trainer.model import weights
from rl_trainer.model.policy import Policy
from rl_trainer.model.weights import Snapshot
from rl_trainer.publish.handover import PolicyFiles
from rl_trainer.publish.policy_shard import (
    EncodeDelta,
    KeepAsBase,
    PolicyShard,
    ReportSize,
    ShardRequest,
    ShardResponse,
    UploadFiles,
)

MAX_THREADS = 8


def encoders() -> ThreadPoolExecutor:
    """Threads for encoding and digests."""
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    return ThreadPoolExecutor(threads, thread_name_prefix="publisher")


class PolicyShards:
    """Responds to rank 0's requests about this rank's tensors, one at a time.

    It holds at most three copies of them: the snapshot that waits, the one being published, and
    the last published one, which the next delta starts from. The caller keeps that bound: whoever
    takes a snapshot must drop the one that waited before.

    Args:
        objects: where the files go: the run's bucket, or a folder.
        executor: for encoding and digests.
    """

    def __init__(self, objects: PolicyFiles, executor: Executor) -> None:
        self._objects, self._executor = objects, executor
        self._lock = threading.Lock()
        self._waiting: dict[int, Snapshot] = {}
        self._current_shard: PolicyShard | None = None
        self._base: tuple[int, PolicyShard] | None = None

    def take(self, number: int, tensors: Snapshot) -> None:
        """Hold a snapshot until it is requested or dropped."""
        with self._lock:
            self._waiting[number] = tensors

    def drop(self, number: int) -> None:
        """Free a snapshot that will not be requested; does nothing where there is none."""
        with self._lock:
            self._waiting.pop(number, None)

    @property
    def busy(self) -> bool:
        """Whether rank 0 may send a request: a snapshot waits or is being published."""
        with self._lock:
            return bool(self._waiting) or self._current_shard is not None

    def respond(self, request: ShardRequest) -> ShardResponse:
        """Carry out a request.

        Raises:
            RLError: the bucket did not take the files.
        """
        match request:
            case ReportSize(number=number, base=base):
                return self._begin(number).report_size(self._base_of(base))
            case EncodeDelta():
                assert self._base is not None, (
                    "rank 0 requests a delta only where its size is finite"
                )
                return self._current.encode_delta(self._base[1])
            case UploadFiles():
                return self._current.upload(request)
            case KeepAsBase(version=version):
                self._keep(version)
                return None

    @property
    def _current(self) -> PolicyShard:
        assert self._current_shard is not None, "the first request for a snapshot is ReportSize"
        return self._current_shard

    def _begin(self, number: int) -> PolicyShard:
        with self._lock:
            tensors = self._waiting.pop(number)
        self._current_shard = PolicyShard(self._objects, tensors, self._executor)
        return self._current_shard

    def _base_of(self, version: int) -> PolicyShard | None:
        if self._base is None or self._base[0] != version:
            return None
        return self._base[1]

    def _keep(self, version: int) -> None:
        self._current.drop_delta()
        self._base = (version, self._current) if version else None
        self._current_shard = None


def take(
    shards: PolicyShards,
    command: SnapshotShard,
    policy: Policy,
    *,
    precision: Precision,
    world: World,
) -> None:
    """Carry out the command: free the dropped snapshot first, then copy, to bound memory."""
    shards.drop(command.drop)
    shards.take(command.number, weights.own_tensors(policy, precision=precision, world=world))
