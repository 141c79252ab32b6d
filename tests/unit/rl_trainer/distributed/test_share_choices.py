"""A run whose next job no longer replays routing trains rollouts of both kinds together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.routing import Routing
from rl_contracts.stores.overflowing import Read
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.packing import collate
from rl_trainer.algorithm.rollout_faults import Replayed
from rl_trainer.algorithm.samples import batch_samples, with_tokens
from rl_trainer.distributed.share import ShareReader
from tests.samples.documents import a_batch, a_rollout, a_task

ROUTING = Routing(items=2, item_bytes=1, data=bytes([0, 1, 2, 3, 1, 0, 255, 255]))


class Kept:
    """Rollouts in memory."""

    def __init__(self, *rollouts: Rollout) -> None:
        self._rollouts = {rollout.id: rollout for rollout in rollouts}

    def read(self, ids: Sequence[str]) -> Read[Rollout]:
        return Read({name: self._rollouts[name] for name in ids}, {})

    def heads(self, ids: Sequence[str]) -> Read[RolloutHead]:
        return Read({name: RolloutHead.of(self._rollouts[name]) for name in ids}, {})


@pytest.mark.parametrize("replays", [False, True])
def test_choices_of_experts_are_kept_where_they_are_replayed_alone(replays: bool) -> None:
    routed = a_rollout(a_task(1), routing=ROUTING)
    rollouts = [routed] if replays else [routed, a_rollout(a_task(2))]
    replayed = Replayed(items=2, experts=4) if replays else None
    reader = ShareReader(Kept(*rollouts), Limits(vocabulary=16, max_tokens=8, replayed=replayed))
    heads = reader.heads([rollout.id for rollout in rollouts]).whole
    members = [BatchMember(rollout=name, advantage=0.5) for name in heads]
    samples = reader.attached(batch_samples(a_batch(1, None, members=members), heads))
    everything = tuple(range(len(samples)))
    packed = collate(with_tokens(samples, everything), everything)
    assert (packed.choices is not None) == replays
