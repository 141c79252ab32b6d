"""Deletes policies that are no longer needed: marks them first, deletes them after a grace period.

A sampler's registration names the version that it stages. That version is kept, and so are the
versions that its deltas start from. The grace period is longer than the time between two
registrations, so a sampler that started to stage before the mark is seen. A sampler that is late
all the same gets a missing object, reports it, and stages the newest version.

``python -m rl_trainer.publish.policy_collector`` in a trainer's pod prints what would be deleted,
and deletes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.env import EnvironmentVariableError, TrainerEnv
from rl_contracts.errors import RLError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.retention import ObjectBound
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer.checkpoint import retention

log = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
"""Samplers register every 2 s and count as gone after 20 s of silence."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Policies by what is done with them."""

    marked: list[PolicyRecord]
    unmarked: list[PolicyRecord]
    """Needed again: their mark is removed."""
    deleted: list[PolicyRecord]


class PolicyCollector:
    """The policies of one run, seen from the trainer of an epoch."""

    def __init__(
        self,
        stores: Stores,
        *,
        run: str,
        epoch: int,
        keep_last: int,
        bound: ObjectBound = retention.UNBOUNDED,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._stores, self._run, self._epoch = stores, run, epoch
        self._keep_last, self._bound, self._grace = keep_last, bound, grace_seconds

    def plan(self) -> Collected:
        """What ``collect`` would do now; changes nothing."""
        stores = self._stores
        # Only what an own or earlier epoch made: see ``retention``.
        records = [
            policy for policy in stores.policies.of_run(self._run) if policy.epoch <= self._epoch
        ]
        now = stores.mongo.now()
        needed = retention.needed_policies(
            records, keep_last=self._keep_last, bound=self._bound, now=now
        )
        ripe = {
            record.version
            for record in records
            if record.marked_at is not None and record.marked_at <= now - self._grace
        }
        # Read after the marks: whoever registered since then is seen.
        held = retention.with_bases(records, self._staging() if ripe - needed else set())
        return Collected(
            marked=_remarked(records, to=now, when=lambda record: record.version not in needed),
            unmarked=_remarked(records, to=None, when=lambda record: record.version in needed),
            deleted=[record for record in records if record.version in ripe - needed - held],
        )

    def collect(self) -> Collected:
        """Mark policies that are no longer needed; delete those whose grace period is over."""
        plan = self.plan()
        self._stores.policies.put([*plan.marked, *plan.unmarked])
        for record in plan.deleted:
            self._stores.objects.delete_prefix(record.prefix)
            self._stores.policies.delete(record.id)
            log.info("deleted policy %d", record.version)
        return plan

    def _staging(self) -> set[int]:
        return self._stores.samplers.versions(self._run)


def _remarked(
    records: list[PolicyRecord], *, to: float | None, when: Callable[[PolicyRecord], bool]
) -> list[PolicyRecord]:
    """Records for which ``when`` holds and whose mark changes: set where ``to`` is a time."""
    return [
        record.model_copy(update={"marked_at": to})
        for record in records
        if when(record) and (record.marked_at is None) is (to is not None)
    ]


def plan_lines(plan: Collected) -> Iterator[str]:
    """A plan as text: a line for each version, then the totals."""
    for doing, records in (
        ("mark", plan.marked),
        ("unmark", plan.unmarked),
        ("delete", plan.deleted),
    ):
        for record in records:
            size = f"{record.content}, {record.size_bytes} bytes"
            yield f"would {doing} version {record.version} ({size})"
    freed = sum(record.size_bytes for record in plan.deleted)
    yield (
        f"{len(plan.marked)} to mark, {len(plan.unmarked)} to unmark, "
        f"{len(plan.deleted)} to delete: {freed} bytes"
    )


def main(environ: Mapping[str, str]) -> int:
    """Print the plan of the pod's own run; 0, or 1 where it cannot be made."""
    try:
        env = TrainerEnv.parse(environ)
        spec = RLJobSpec.model_validate_json(env.spec_file.read_bytes())
        settings = StoreSettings.from_folder(env.stores_folder)
        with contextlib.closing(Stores.connect(settings, patience_seconds=10.0)) as stores:
            run = stores.runs.get(env.run)
            if run is None:
                sys.stderr.write(
                    f"run {env.run} has not started: the state store has no document of it\n"
                )
                return 1
            collector = PolicyCollector(
                stores,
                run=env.run,
                epoch=run.epoch,
                keep_last=spec.weight_sync.keep_last,
                bound=spec.lifecycle.retention.policies,
            )
            for line in plan_lines(collector.plan()):
                sys.stdout.write(line + "\n")
    except (EnvironmentVariableError, RLError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
