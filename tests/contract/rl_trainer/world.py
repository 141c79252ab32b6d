"""One run to train: model and data in the bucket, the files that a trainer pod is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file
from torch import Tensor

from rl_contracts import env
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Outcome, Run
from rl_contracts.env import TrainerEnv
from rl_contracts.model_files import weight_files
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores import reports
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.model_folder import ModelFolder, ModelLocation
from rl_trainer import attempt, inputs
from rl_trainer.algorithm import step_metrics
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.samples import Sample, batch_samples
from rl_trainer.distributed import rendezvous
from rl_trainer.distributed.share import ShareReader
from rl_trainer.distributed.world import ALONE
from rl_trainer.model import loading, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import sharding
from tests.contract.rl_trainer.distributed import ranks
from tests.models.tiny_model import save_tiny
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS

RUN = "11111111-2222"
PATIENCE_SECONDS = HUNG_SECONDS
connect: Callable[..., Stores] = Stores.connect
"""A test may put its own in this place."""


@dataclass
class World:
    """The run, and the trainer pod's surroundings."""

    folder: Path
    stores: Stores
    settings: StoreSettings
    spec: RLJobSpec

    @classmethod
    def make(
        cls,
        folder: Path,
        stores: Stores,
        settings: StoreSettings,
        *,
        model: Mapping[str, Any] = {},
        **training: Any,
    ) -> Self:
        """Upload a tiny model and data, and write the files that a pod mounts.

        Args:
            folder: of the machine, for what a pod has.
            stores: of the run.
            settings: theirs.
            model: what differs from the tiny model.
            training: what differs from a short training.
        """
        objects = stores.objects
        root = f"s3://{objects.bucket}/{objects.prefix}"
        spec = RLJobSpec.model_validate(
            {
                "model": {"uri": f"{root}model"},
                "data": {
                    "train": [{"name": "train", "uri": f"{root}train.jsonl"}],
                    "validation": [{"name": "test", "uri": f"{root}test.jsonl"}],
                },
                "reward": {"scorers": [{"kind": "ExactMatch"}]},
                "algorithm": {"groupSize": 4, "offPolicy": {"maxStaleness": 2}},
                "training": training_section(**training),
                "weightSync": {"keepLast": 3},
                "samplers": [{"name": "main"}],
            }
        )
        world = cls(folder=folder, stores=stores, settings=settings, spec=spec)
        for path in save_tiny(folder / "model", **model).iterdir():
            objects.put_file(f"{objects.prefix}model/{path.name}", path)
        world.put_data("train", range(10))
        world.put_data("test", range(10))
        world.write_mounts()
        return world

    def put_data(self, name: str, digits: range) -> None:
        """Every digit is asked for the digit 7."""
        records = [{"id": f"e{digit}", "query": str(digit), "answer": "7"} for digit in digits]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        self.stores.objects.put(f"{self.stores.objects.prefix}{name}.jsonl", lines.encode())

    def write_mounts(self) -> None:
        """The ConfigMap and the Secret as files."""
        (self.folder / "rljob.json").write_text(self.spec.model_dump_json(by_alias=True))
        secret = self.folder / "stores"
        secret.mkdir(exist_ok=True)
        for key, value in self.settings.to_mapping().items():
            (secret / key).write_text(value)

    @property
    def environment(self) -> dict[str, str]:
        """What the operator sets, and where a killed trainer leaves its scratch folder."""
        return {
            "TMPDIR": str(self.folder),
            env.NAMESPACE: "ns",
            env.JOB: "sums",
            env.RUN: RUN,
            env.JOB_UID: RUN,
            env.ATTEMPT: "1",
            env.SPEC_FILE: str(self.folder / "rljob.json"),
            env.STORES_FOLDER: str(self.folder / "stores"),
        }

    def attempt(self, terminated: threading.Event | None = None) -> int:
        """One attempt in this process; its exit code."""
        return attempt.run(
            TrainerEnv.parse(self.environment),
            terminated=terminated or threading.Event(),
            connect=partial(connect, patience_seconds=PATIENCE_SECONDS),
            scratch=self.folder,
        )

    def forked(self) -> ForkServerProcess:
        """One attempt in a process of its own, without the seconds that its imports take."""
        return ranks.attempt(self.environment)

    def process(self, **changes: str) -> subprocess.Popen[bytes]:
        """One attempt as a pod starts it: ``python -m rl_trainer`` from nothing.

        Args:
            changes: of its environment.
        """
        places = [str(ROOT / "contracts"), str(ROOT / "trainer_image")]
        more = {"PYTHONPATH": os.pathsep.join(places), "OMP_WAIT_POLICY": "PASSIVE"}
        with (self.folder / "trainer.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "rl_trainer"],
                env=os.environ | self.environment | more | changes,
                stdout=log,
                stderr=log,
            )

    @property
    def run(self) -> Run:
        """The run document."""
        run = self.stores.runs.get(RUN)
        assert run is not None
        return run

    @property
    def evaluations(self) -> list[EvaluationResult]:
        """All results that count, oldest first."""
        return self.stores.evaluations.lineage(self.run)

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        assert self.run.outcome is not None
        return self.run.outcome

    def at_step(self, step: int) -> Callable[[], Run | None]:
        """For ``until``: the run once it has committed so many steps."""

        def look() -> Run | None:
            run = self.stores.runs.get(RUN)
            return run if run is not None and run.step >= step else None

        return look

    def get(self, name: str) -> bytes:
        """An object of the run."""
        return self.stores.objects.get(self.stores.run_prefix(RUN) + name)

    def newest(self, name: str) -> bytes:
        """Metrics or report of the newest epoch that wrote them."""
        return reports.newest(self.stores.objects, self.stores.run_prefix(RUN), name)

    def report(self) -> dict[str, Any]:
        """The run's report."""
        report: dict[str, Any] = json.loads(self.newest(reports.REPORT))
        return report

    def final_weights(self) -> dict[str, Tensor]:
        """Weights of the final model."""
        with tempfile.TemporaryDirectory() as folder:
            location = ModelLocation.own(self.outcome.final_model)
            ModelFolder(self.stores.objects, location).download(Path(folder))
            files = weight_files(Path(folder))
            return {name: tensor for path in files for name, tensor in load_file(path).items()}

    def trained(self) -> list[list[Rollout]]:
        """Rollouts of each step of the lineage, in order."""
        batches = []
        for batch in self.stores.batches.lineage(self.run.head_batch):
            ids = [member.rollout for member in batch.members]
            rollouts = self.stores.rollouts.get(ids)
            batches.append([rollouts[name] for name in ids])
        return batches

    def samples(self, batch: Batch) -> list[Sample]:
        """What a step trains; tokens are read from the store when they are needed."""
        heads = self.stores.rollouts.heads([member.rollout for member in batch.members]).whole
        reader = ShareReader(self.stores.rollouts, Limits(vocabulary=1 << 20, max_tokens=1 << 20))
        return reader.attached(batch_samples(batch, heads))

    def first_learner(self) -> Learner:
        """A learner of this process, as the run's first one began."""
        low_rank, offload = self.spec.training.lora, self.spec.training.offload_parameters
        policy = loading.load(
            self.folder / "model",
            precision="FP32",
            uri=self.spec.model.uri,
            offload_parameters=offload,
            quantize=None if low_rank is None else low_rank.quantization,
        )
        teacher, uri = None, self.spec.algorithm.teacher
        if uri is not None:
            teacher = loading.load(self.folder / "teacher", precision="FP32", uri=uri)
        adapter = inputs.adapter_of(self.folder / "model", policy, self.spec)
        alone = rendezvous.with_mesh(ALONE) if offload else ALONE
        return Learner(policy, self.spec, teacher=teacher, adapter=adapter, world=alone)

    def uninterrupted(self) -> dict[str, Tensor]:
        """Weights of a trainer that trains the lineage's batches without ever stopping.

        At the rates that the run recorded, since its number of steps may have been raised.
        """
        learner = self.first_learner()
        torch.use_deterministic_algorithms(True)
        for batch in self.stores.batches.lineage(self.run.head_batch):
            rates = None if batch.metrics is None else step_metrics.rates(batch.metrics)
            learner.update(self.samples(batch), step=batch.step, rates=rates)
        if learner.policy.adapter is not None:
            return weights.snapshot(learner.policy, precision="FP32")
        return {
            name: sharding.full(parameter.detach())
            for name, parameter in learner.parameters.items()
        }

    def check_lineage(self) -> None:
        """Each step once, each rollout once, none too old, the weights those of the batches."""
        batches = self.stores.batches.lineage(self.run.head_batch)
        assert [batch.step for batch in batches] == list(range(1, self.run.step + 1))
        tasks = [task for batch in batches for task in batch.tasks]
        assert len(tasks) == len(set(tasks)), "a task was trained twice"
        bound = self.spec.algorithm.off_policy.max_staleness
        for step, rollouts in enumerate(self.trained(), start=1):
            assert max(step - 1 - rollout.oldest_step for rollout in rollouts) <= bound
        final, expected = self.final_weights(), self.uninterrupted()
        assert all(torch.equal(tensor, final[name]) for name, tensor in expected.items())


def training_section(**changes: Any) -> dict[str, Any]:
    """A short training."""
    values: dict[str, Any] = {
        "steps": 8,
        "promptsPerStep": 4,
        "precision": "FP32",
        "maxTokensPerMicrobatch": 64,
        "optimizer": {"learningRate": 3e-3},
        "checkpoint": {"everySteps": 3},
        "evaluation": {"beforeTraining": False, "afterTraining": False, "temperatures": [1.0]},
    }
    return values | changes
