"""Reads the rollouts of a rank's share of a batch, and finds those that cannot be trained."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout
from rl_contracts.errors import RLError
from rl_contracts.stores.overflowing import Read
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.samples import READ, Sample, sequences
from rl_trainer.errors import ShareUnreadableError

AT_ONCE = 64
"""Rollouts whose documents are held at a time beside the samples made of them."""


class Rollouts(Protocol):
    """Where rollouts are read: ``RolloutStore``."""

    def read(self, ids: Sequence[str]) -> Read[Rollout]:
        """Read rollouts by id; see there."""

    def heads(self, ids: Sequence[str]) -> Read[RolloutHead]:
        """Read their heads; see there."""


@dataclass(frozen=True, slots=True)
class Known:
    """A rollout that was read and can be trained."""

    head: str
    """Digest of its head, made from what was read."""
    samples: list[Sample]


class ShareReader:
    """Reads rollouts, and keeps them until ``forget``. Threads may share it.

    Args:
        rollouts: where they are.
        limits: of usable rollouts.
        alone: the share of this process is all of every batch.
    """

    def __init__(self, rollouts: Rollouts, limits: Limits, *, alone: bool = False) -> None:
        self._rollouts, self._limits, self._alone = rollouts, limits, alone
        self._lock = threading.Lock()
        self._known: dict[str, Known] = {}

    def attached(self, samples: Sequence[Sample]) -> list[Sample]:
        """Samples whose tokens are read here when they are needed."""
        return [
            sample
            if sample.unread is None
            else replace(sample, unread=replace(sample.unread, source=self))
            for sample in samples
        ]

    def heads(self, names: Sequence[str]) -> Read[RolloutHead]:
        """Heads by id; lists damaged rollouts separately and leaves out missing ones.

        A process that trains all of every batch reads whole rollouts for it and keeps them, so that
        the store is asked once. Their heads are those of their tokens.

        Raises:
            StoreUnavailableError: a store does not answer.
        """
        if not self._alone:
            return self._rollouts.heads(names)
        heads: dict[str, RolloutHead] = {}
        wrong: dict[str, str] = {}
        for first in range(0, len(names), AT_ONCE):
            read = self._rollouts.read(names[first : first + AT_ONCE])
            wrong |= read.damaged
            heads |= self._keep_usable(read.whole, wrong)
        return Read(heads, wrong)

    def verify(self, heads: Mapping[str, str]) -> dict[str, str]:
        """Read rollouts that were not read yet.

        Args:
            heads: digest of the head from which each was planned, by id.

        Returns:
            What is wrong with those that cannot be trained, by id.

        Raises:
            StoreUnavailableError: a store does not answer.
        """
        wrong: dict[str, str] = {}
        with self._lock:
            missing = [name for name in heads if name not in self._known]
        for first in range(0, len(missing), AT_ONCE):
            wrong |= self._read(missing[first : first + AT_ONCE])
        with self._lock:
            known = {name: self._known[name].head for name in heads if name in self._known}
        changed = [name for name, head in known.items() if head != heads[name]]
        self.forget(changed)
        return wrong | dict.fromkeys(changed, "its document is not what its summary says")

    def read(self, samples: Sequence[Sample]) -> list[Sample]:
        """See ``samples.Source``.

        Raises:
            ShareUnreadableError: a rollout is missing or damaged, or the store does not answer.
        """
        heads = {
            sample.rollout: sample.unread.head for sample in samples if sample.unread is not None
        }
        try:
            wrong = self.verify(heads)
        except RLError as error:
            raise ShareUnreadableError.of("rollouts", error) from error
        for name, why in wrong.items():
            raise ShareUnreadableError(f"rollout {name}: {why}", reason="StoredDataCorrupt")
        return [self._whole(sample) for sample in samples]

    def remember(self, rollouts: Iterable[Rollout]) -> None:
        """Keep rollouts that this process made itself, as if they had been read."""
        for rollout in rollouts:
            self._keep(rollout)

    def forget(self, names: Collection[str] | None = None) -> None:
        """Drop what was read; all of it without names."""
        with self._lock:
            if names is None:
                self._known.clear()
            else:
                for name in names:
                    self._known.pop(name, None)

    def _read(self, names: list[str]) -> dict[str, str]:
        read = self._rollouts.read(names)
        wrong = dict(read.damaged)
        for name in names:
            if name not in wrong and name not in read.whole:
                wrong[name] = "it is not in the store"
        self._keep_usable(read.whole, wrong)
        return wrong

    def _keep_usable(
        self, rollouts: Mapping[str, Rollout], wrong: dict[str, str]
    ) -> dict[str, RolloutHead]:
        """Keep those that can be trained, and return their heads; adds the others to ``wrong``."""
        heads: dict[str, RolloutHead] = {}
        for name, rollout in rollouts.items():
            problem = self._limits.fault(rollout)
            if problem:
                wrong[name] = problem
            else:
                heads[name] = self._keep(rollout)
        return heads

    def _keep(self, rollout: Rollout) -> RolloutHead:
        head, samples = RolloutHead.of(rollout), sequences(rollout)
        if self._limits.replayed is None:  # an earlier job of the run may have asked for choices
            samples = [replace(sample, choices=None) for sample in samples]
        known = Known(head.sha256, samples)
        with self._lock:
            self._known[rollout.id] = known
        return head

    def _whole(self, sample: Sample) -> Sample:
        unread = sample.unread
        assert unread is not None
        with self._lock:
            read = self._known[sample.rollout].samples[unread.sequence]
        return replace(sample, unread=None, **{name: getattr(read, name) for name in READ})
