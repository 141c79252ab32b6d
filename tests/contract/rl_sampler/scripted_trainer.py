"""The trainer's side of the stores, by script: policies, tasks, steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from safetensors.numpy import save

from rl_contracts import ids
from rl_contracts.documents.manifest import FileEntry, Manifest, TensorEntry
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import PolicyPointer, Totals
from rl_contracts.documents.task import Message, Queue, Task, TaskState
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.tiny_model import Tensors, tensors
from tests.samples.documents import RUN, a_run, a_step

DTYPES = {"float32": "F32", "float16": "F16"}
Damage = Callable[[bytes], bytes]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def policy_manifest(weights: Tensors, data: bytes, *, run: str, **names: int) -> Manifest:
    """Manifest of a policy in one file."""
    return Manifest.model_validate(
        {
            "kind": "policy",
            "run": run,
            **names,
            "files": [
                FileEntry(name="model.safetensors", size_bytes=len(data), sha256=digest(data))
            ],
            "tensors": [
                TensorEntry(
                    name=name,
                    file="model.safetensors",
                    dtype=DTYPES[tensor.dtype.name],
                    shape=list(tensor.shape),
                    sha256=digest(tensor.tobytes()),
                )
                for name, tensor in weights.items()
            ],
        }
    )


class ScriptedTrainer:
    """One run's trainer."""

    def __init__(self, stores: Stores, *, run: str = RUN) -> None:
        self.stores = stores
        self.run = ids.RunId(run)
        stores.runs.create(a_run(id=run))
        self.epoch = stores.runs.take_epoch(self.run).epoch
        self.step = 0
        self.inserted = 0

    def publish(
        self,
        *,
        seed: int = 0,
        weights: Tensors | None = None,
        damage: Damage = lambda data: data,
        manifest_of: bytes | None = None,
    ) -> PolicyPointer:
        """Publish a version; ``damage`` changes what lies in the bucket, not its manifest."""
        return self.point(
            self.write(seed=seed, weights=weights, damage=damage, manifest_of=manifest_of)
        )

    def point(self, pointer: PolicyPointer) -> PolicyPointer:
        """Tell of a version that was written."""
        self.stores.runs.publish(self.run, epoch=self.epoch, pointer=pointer)
        return pointer

    def write(
        self,
        *,
        seed: int = 0,
        weights: Tensors | None = None,
        damage: Damage = lambda data: data,
        manifest_of: bytes | None = None,
    ) -> PolicyPointer:
        """Put a version into the bucket that nobody knows of yet."""
        weights = tensors(seed) if weights is None else weights
        version = self.stores.runs.reserve_version(self.run, epoch=self.epoch)
        data = save(weights, metadata={"format": "pt"}) if manifest_of is None else manifest_of
        manifest = policy_manifest(
            weights, data, run=self.run, epoch=self.epoch, step=self.step, version=version
        ).to_bytes()
        prefix = f"{self.stores.run_prefix(self.run)}policies/{version:08d}-{self.epoch}-abcd/"
        self.stores.objects.put(prefix + "model.safetensors", damage(data))
        self.stores.objects.put(prefix + "manifest.json", manifest)
        return PolicyPointer(
            version=version,
            epoch=self.epoch,
            step=self.step,
            prefix=prefix,
            manifest_sha256=digest(manifest),
        )

    def advance(self) -> None:
        """Commit a training step."""
        self.step += 1
        self.stores.runs.commit_step(
            self.run,
            epoch=self.epoch,
            head_batch=f"b{self.step}",
            latest=a_step(self.step),
            totals=Totals(),
        )

    def insert(
        self,
        number: int,
        *,
        group_size: int = 4,
        temperature: float = 1.0,
        content: str = "1+1=",
        **fields: object,
    ) -> list[str]:
        """Insert training tasks."""
        sequences = range(self.inserted, self.inserted + number)
        self.inserted += number
        return self._insert(
            [ids.task_id(self.run, "train", sequence) for sequence in sequences],
            queue=Queue.TRAIN,
            group_size=group_size,
            temperature=temperature,
            content=content,
            **fields,
        )

    def insert_evaluation(self, number: int, *, version: int) -> list[str]:
        """Insert evaluation tasks of one version."""
        split = f"eval-{version}-{self.epoch}"
        return self._insert(
            [ids.task_id(self.run, split, index) for index in range(number)],
            queue=Queue.EVALUATION,
            evaluation_version=version,
            group_size=1,
            temperature=0.7,
            content="2+2=",
        )

    def _insert(self, wanted: list[ids.TaskId], *, content: str, **fields: object) -> list[str]:
        tasks = [
            Task.model_validate(
                {
                    "id": task,
                    "run": self.run,
                    "sequence": sequence,
                    "example": f"e{sequence}",
                    "messages": [Message(role="user", content=content)],
                    "answer": "2",
                    "created_step": self.step,
                    **fields,
                }
            )
            for sequence, task in enumerate(wanted)
        ]
        self.stores.tasks.insert(tasks)
        self.announce()
        return list(wanted)

    def announce(self) -> None:
        """Wake agents without work: there may be tasks."""
        self.stores.runs.hint(self.run, epoch=self.epoch)

    def states(self, wanted: list[str]) -> dict[str, TaskState]:
        """Where the tasks are."""
        return {name: task.state for name, task in self.stores.tasks.get(wanted).items()}

    def all_done(self, wanted: list[str]) -> bool:
        """Whether all of them are done; claims whose lease is over are taken back on the way."""
        if self.stores.tasks.reap(self.run):
            self.announce()
        return set(self.states(wanted).values()) == {TaskState.DONE}

    def chosen(self, wanted: list[str]) -> list[Rollout]:
        """The rollouts that are data, in task and member order."""
        tasks = self.stores.tasks.get(wanted)
        names = [name for task in wanted for name in tasks[task].rollouts]
        rollouts = self.stores.rollouts.get(names)
        return [rollouts[name] for name in names]
