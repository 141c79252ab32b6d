"""Connects to all stores of a namespace."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.stores.batches import BatchStore
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.leases import LeaseStore
from rl_contracts.stores.models import ModelStore
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.records import EvaluationStore, PolicyStore
from rl_contracts.stores.rollouts import RolloutStore
from rl_contracts.stores.runs import RunStore
from rl_contracts.stores.samplers import SamplerStore
from rl_contracts.stores.tasks import TaskStore
from rl_contracts.stores.token_values import TokenValueStore
from rl_contracts.stores.turns import TurnStore


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Stores:
    """All stores of a namespace."""

    mongo: Mongo
    runs: RunStore
    tasks: TaskStore
    leases: LeaseStore
    rollouts: RolloutStore
    turns: TurnStore
    batches: BatchStore
    token_values: TokenValueStore
    evaluations: EvaluationStore
    policies: PolicyStore
    samplers: SamplerStore
    models: ModelStore
    objects: Objects

    @classmethod
    def connect(
        cls,
        settings: StoreSettings,
        *,
        patience_seconds: float = 120.0,
        connections: int | None = None,
        memory_bytes: int | None = None,
    ) -> Stores:
        """Create the clients; nothing is sent before the first call.

        Args:
            settings: addresses and credentials.
            patience_seconds: how long each call is retried while its store does not answer.
            connections: to the document store; see ``mongo_client.connect``.
            memory_bytes: as in ``Bucket``.
        """
        return cls.of(
            Mongo(settings, patience_seconds=patience_seconds, connections=connections),
            Objects(settings, patience_seconds=patience_seconds, memory_bytes=memory_bytes),
        )

    @classmethod
    def of(cls, mongo: Mongo, objects: Objects) -> Stores:
        """All stores on top of two clients."""
        return cls(
            mongo=mongo,
            runs=RunStore(mongo),
            tasks=TaskStore(mongo),
            leases=LeaseStore(mongo),
            rollouts=RolloutStore(mongo, objects),
            turns=TurnStore(mongo),
            batches=BatchStore(mongo, objects),
            token_values=TokenValueStore(objects),
            evaluations=EvaluationStore(mongo),
            policies=PolicyStore(mongo),
            samplers=SamplerStore(mongo),
            models=ModelStore(mongo),
            objects=objects,
        )

    def close(self) -> None:
        """Close all connections."""
        self.mongo.close()

    def run_prefix(self, run: str) -> str:
        """Key prefix of all objects of a run in the bucket; ends with a slash."""
        return f"{self.objects.prefix}runs/{run}/"
