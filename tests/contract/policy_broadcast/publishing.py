"""A trainer's publisher of a tiny model, on stores of the test's choice."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from rl_contracts.documents.run import PolicyPointer, Run
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job
from rl_trainer.model import loading, weights
from rl_trainer.model.policy import Policy
from rl_trainer.publish.publisher import Publisher
from tests.contract.policy_broadcast.world import Subscriber
from tests.models.tiny_model import save_tiny
from tests.samples.documents import a_run

RUN = a_run().id
SPEC = RLJobSpec.model_validate(
    {
        "model": {"uri": "s3://bucket/model"},
        "data": {"train": [{"name": "train", "uri": "s3://bucket/train.jsonl"}]},
        "reward": {"scorers": [{"kind": "ExactMatch"}]},
        "training": {"steps": 4, "optimizer": {"learningRate": 1e-3}},
        "samplers": [{"name": "main"}],
        "weightSync": {"keepLast": 2},
    }
)


@dataclass
class Trainer:
    """One epoch of the run, with its publisher."""

    stores: Stores
    policy: Policy
    publisher: Publisher

    @classmethod
    def start(cls, stores: Stores, folder: Path) -> Trainer:
        """Take the run's next epoch."""
        if stores.runs.get(RUN) is None:
            stores.runs.create(a_run())
        epoch = stores.runs.take_epoch(RUN).epoch
        beats = Heartbeat(stores, run=RUN, epoch=epoch, terminated=threading.Event())
        job = Job(
            name="job",
            run=RUN,
            epoch=epoch,
            spec=SPEC,
            stores=stores,
            heartbeat=beats,
            folder=folder,
        )
        loaded = folder / f"model-{epoch}"
        policy = loading.load(save_tiny(loaded), precision="BF16", uri="s3://bucket/model")
        return cls(stores, policy, Publisher(job, policy))

    def step(self) -> dict[str, bytes]:
        """Change every weight; what is to be published from now on."""
        with torch.no_grad():
            for parameter in self.policy.parameters().values():
                parameter.add_(0.01)
        return self.content

    @property
    def content(self) -> dict[str, bytes]:
        """Bytes of every tensor as it would be published."""
        taken = weights.snapshot(self.policy, precision="BF16")
        return {name: tensor.view(torch.uint8).numpy().tobytes() for name, tensor in taken.items()}

    @property
    def run(self) -> Run:
        """The run document."""
        run = self.stores.runs.get(RUN)
        assert run is not None
        return run

    @property
    def pointer(self) -> PolicyPointer:
        """What samplers are told to serve."""
        assert self.run.policy is not None
        return self.run.policy

    def subscriber(self, folder: Path) -> Subscriber:
        """A sampler's folder of this model."""
        taken = weights.snapshot(self.policy, precision="BF16")
        return Subscriber.make(folder, self.stores.objects, taken)
