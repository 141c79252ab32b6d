"""Reads the tokens of a rank's share of a batch from the store; rank 0 sends none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rl_contracts.errors import RLError
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer.algorithm.samples import ARRAYS, Sample, sequences, sha256_of_tokens


class ShareUnreadableError(Exception):
    """A rank cannot read what it has to train.

    No RLError: other ranks are in the middle of the computation and wait for this one, so the
    process ends instead of reporting.
    """


class ShareReader:
    """Reads rollouts, and keeps them until ``forget``."""

    def __init__(self, rollouts: RolloutStore) -> None:
        self._rollouts = rollouts
        self._known: dict[str, list[Sample]] = {}
        """Sequences of each rollout that was read."""

    def attached(self, samples: Sequence[Sample]) -> list[Sample]:
        """Samples that were received, so that their tokens can be read."""
        return [
            sample
            if sample.unread is None
            else replace(sample, unread=replace(sample.unread, source=self))
            for sample in samples
        ]

    def read(self, samples: Sequence[Sample]) -> list[Sample]:
        """See ``samples.Source``.

        Raises:
            ShareUnreadableError: a rollout is missing, is not what rank 0 read, or the store does
                not answer.
        """
        names = dict.fromkeys(sample.rollout for sample in samples)
        missing = [name for name in names if name not in self._known]
        try:
            for name, rollout in self._rollouts.get(missing).items():
                self._known[name] = sequences(rollout)
        except RLError as error:
            raise ShareUnreadableError(f"cannot read rollouts of this rank: {error}") from error
        return [self._whole(sample) for sample in samples]

    def forget(self) -> None:
        """Drop what was read."""
        self._known.clear()

    def _whole(self, sample: Sample) -> Sample:
        unread = sample.unread
        assert unread is not None
        known = self._known.get(sample.rollout, [])
        if unread.sequence >= len(known):
            raise ShareUnreadableError(f"rollout {sample.rollout} is not in the store as expected")
        read = known[unread.sequence]
        if sha256_of_tokens(read) != unread.sha256:
            raise ShareUnreadableError(f"rollout {sample.rollout} is not what rank 0 has read")
        arrays = {name: getattr(read, name) for name in ARRAYS}
        return replace(sample, unread=None, images=read.images, **arrays)
