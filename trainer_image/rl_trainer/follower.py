"""A rank that is not 0: it carries out rank 0's orders; all it writes are its policies' files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from rl_contracts.errors import RLError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.model_folder import BasePlaces
from rl_contracts.stores.objects import Objects
from rl_trainer import inputs
from rl_trainer.checkpoint import saved
from rl_trainer.distributed.rank_commands import (
    Assess,
    Begin,
    Copy,
    End,
    Order,
    Pause,
    PutBack,
    Score,
    Share,
    Snapshot,
    Update,
)
from rl_trainer.distributed.team import Team
from rl_trainer.model import weights
from rl_trainer.model.learner import Learner
from rl_trainer.publish.channel import Answering
from rl_trainer.publish.policy_shards import Portions, encoders, take

log = logging.getLogger(__name__)


class Follower:
    """One rank's models."""

    def __init__(self, team: Team, objects: Objects, folder: Path) -> None:
        """See the class.

        Args:
            team: of which this is a rank above 0.
            objects: where models and checkpoints come from.
            folder: scratch space.
        """
        self._team, self._objects, self._folder = team, objects, folder
        self._learner: Learner | None = None
        self._precision: Literal["BF16", "FP32"] = "FP32"
        self._portions = Portions(objects, encoders())
        self._answering = Answering(team.world, self._portions)

    def follow(self) -> int:
        """Carry out orders until the last one; returns the exit code that it names.

        Raises:
            RuntimeError: rank 0 is gone.
        """
        self._answering.begin()
        try:
            return self._follow()
        finally:
            self._answering.end()

    def _follow(self) -> int:
        while True:
            order = self._team.receive()
            if isinstance(order, End):
                return order.code
            error = ""
            try:
                self._carry_out(order)
            except RLError as failure:
                log.error("%s: %s", type(order).__name__, failure)
                error = f"{type(failure).__name__}: {failure}"[:500]
            self._team.report(error)

    def _carry_out(self, order: Order) -> None:
        match order:
            case Begin(spec=spec, base=base):
                self._begin(RLJobSpec.model_validate_json(spec), base)
            case Update(samples=samples, step=step):
                self._own.update(samples, step=step)
            case Score(samples=samples, temperature=temperature):
                self._own.score(samples, temperature=temperature)
            case Assess(samples=samples):
                self._own.assess(samples)
            case Snapshot():
                self._snapshot(order)
            case Share():
                take(
                    self._portions,
                    order,
                    self._own.policy,
                    precision=self._precision,
                    world=self._team.world,
                )
            case Copy():
                saved.copied(self._own)
            case PutBack():
                saved.put_back(self._read(order), self._own)
            case Pause() | End():
                pass

    def _snapshot(self, order: Snapshot) -> None:
        world = self._team.world
        if order.adapter:
            weights.adapter(self._own.policy, precision="FP32", world=world)
        else:
            weights.snapshot(self._own.policy, precision=self._precision, world=world)

    @property
    def _own(self) -> Learner:
        assert self._learner is not None, "the first order is Begin"
        return self._learner

    def _begin(self, spec: RLJobSpec, base: BasePlaces) -> None:
        self._precision = spec.training.precision
        self._learner, _ = inputs.learner(
            self._objects, spec, base=base, folder=self._folder, world=self._team.world
        )

    def _read(self, order: PutBack) -> saved.Saved:
        return saved.read(
            self._objects.of_bucket(order.bucket),
            order.prefix,
            manifest_sha256=order.manifest_sha256,
            scratch=self._folder,
        )
