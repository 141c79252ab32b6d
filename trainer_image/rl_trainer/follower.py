"""A rank above 0: carries out rank 0's commands.

It writes nothing but its parts of policies, checkpoints and models, and what it computed of tokens.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rl_contracts.errors import RLError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import Precision
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from rl_contracts.stores.files.model_folder import BaseLocations
from rl_trainer import downloads, inputs
from rl_trainer.checkpoint import checkpointer, export, saved
from rl_trainer.checkpoint.parts import PartWriter
from rl_trainer.distributed.channel import ShardResponder
from rl_trainer.distributed.rank_commands import (
    AssessSamples,
    Exit,
    ExportWeights,
    FetchModels,
    GatherAdapter,
    LoadModels,
    MoveModels,
    Ping,
    RankCommand,
    RestoreCheckpoint,
    ScoreSamples,
    SnapshotShard,
    SnapshotState,
    TakeSamples,
    TrainStep,
)
from rl_trainer.distributed.rank_failure import RankFailure
from rl_trainer.distributed.team import Team
from rl_trainer.model import weights
from rl_trainer.model.host_memory import residence
from rl_trainer.model.learner import Learner
from rl_trainer.publish.handover import policy_files
from rl_trainer.publish.policy_shards import PolicyShards, encoders, take
from rl_trainer.rollouts.rank_work import RankWork
from rl_trainer.rollouts.token_writer import TokenWriter

log = logging.getLogger(__name__)


class Follower:
    """The models of a rank above 0.

    Args:
        team: of which this is a rank above 0.
        stores: where models, checkpoints and rollouts come from; nothing is written but its parts.
        folder: scratch space.
        weights_folder: of the engine, where it shares the pod.
    """

    def __init__(
        self, team: Team, stores: Stores, folder: Path, *, weights_folder: Path | None = None
    ) -> None:
        self._team, self._objects, self._folder = team, stores.objects, folder
        self._rollouts, self._token_values = stores.rollouts, stores.token_values
        self._loaded: RankWork | None = None
        self._precision: Precision = "FP32"
        self._shards = PolicyShards(policy_files(stores.objects, weights_folder), encoders())
        self._part = PartWriter(stores.objects, rank=team.world.rank)
        self._responders = (
            ShardResponder(team.world, self._shards, written="policy"),
            ShardResponder(team.world, self._part, written="checkpoint"),
        )

    def follow(self) -> int:
        """Carry out commands until ``Exit``; returns its exit code.

        Raises:
            RuntimeError: rank 0 is gone.
        """
        for responder in self._responders:
            responder.begin()
        try:
            return self._follow()
        finally:
            for responder in self._responders:
                responder.end()
            if self._loaded is not None:
                self._loaded.close()

    def _follow(self) -> int:
        while True:
            command = self._team.receive()
            if isinstance(command, Exit):
                return command.code
            failure, result = None, None
            try:
                result = self._carry_out(command)
            except RLError as error:
                log.error("%s: %s", type(command).__name__, error)
                failure = RankFailure.of(error)
            self._team.report(failure, result=result)

    def _carry_out(self, command: RankCommand) -> object:
        """Returns what rank 0 asks for, where it asks for anything."""
        match command:
            case FetchModels(spec=spec, base=base):
                self._fetch(RLJobSpec.model_validate_json(spec), base)
            case LoadModels(spec=spec, prefix=prefix):
                self._begin(RLJobSpec.model_validate_json(spec), prefix)
            case TakeSamples(samples=samples, purpose=purpose, step=step):
                return self._work.take(samples, purpose=purpose, step=step)
            case TrainStep() | ScoreSamples() | AssessSamples():
                self._compute(command)
            case ExportWeights():
                return export.write_own(
                    self._objects,
                    command,
                    self._own.policy,
                    precision=self._precision,
                    world=self._team.world,
                )
            case GatherAdapter() | SnapshotState() | SnapshotShard():
                self._copy(command)
            case RestoreCheckpoint():
                saved.put_back(self._read(command), self._own)
            case MoveModels(to_device=to_device):
                residence.move(self._own, to_device=to_device)
            case Ping() | Exit():
                pass
        return None

    def _compute(self, command: TrainStep | ScoreSamples | AssessSamples) -> None:
        """Compute with the samples that were taken."""
        match command:
            case AssessSamples():
                self._work.assess()
                return  # a step with the same rollouts follows
            case TrainStep(step=step, batch=batch, rates=rates):
                self._work.train(step=step, batch=batch, rates=rates)
            case ScoreSamples(temperature=temperature):
                self._work.score(temperature=temperature)
        self._work.reader.forget()

    def _copy(self, command: GatherAdapter | SnapshotState | SnapshotShard) -> None:
        world = self._team.world
        if isinstance(command, SnapshotState):
            checkpointer.take_part(self._part, command, self._own)
        elif isinstance(command, SnapshotShard):
            policy, precision = self._own.policy, self._precision
            take(self._shards, command, policy, precision=precision, world=world)
        else:
            weights.adapter(self._own.policy, precision="FP32", world=world)

    @property
    def _work(self) -> RankWork:
        assert self._loaded is not None, "LoadModels precedes all computations"
        return self._loaded

    @property
    def _own(self) -> Learner:
        return self._work.learner

    def _fetch(self, spec: RLJobSpec, base: BaseLocations) -> None:
        world = self._team.world
        downloads.fetch(self._objects, spec, base=base, folder=self._folder, world=world)

    def _begin(self, spec: RLJobSpec, prefix: str) -> None:
        self._precision = spec.training.precision
        learner, limits = inputs.learner(
            spec,
            folder=self._folder,
            world=self._team.world,
            images=ImageStore(self._objects, run_prefix=prefix),
        )
        writer = TokenWriter(self._token_values, world=self._team.world)
        self._loaded = RankWork(learner, self._rollouts, limits, writer=writer)

    def _read(self, command: RestoreCheckpoint) -> saved.Saved:
        return saved.read(
            self._objects.of_bucket(command.bucket),
            command.prefix,
            manifest_sha256=command.manifest_sha256,
        )
