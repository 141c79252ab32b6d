"""Several processes that train one model over gloo, and what each of them ends with."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from rl_contracts.disk import check_room, free_bytes
from rl_contracts.documents.manifest import FileEntry, Manifest
from rl_contracts.documents.run import Totals
from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.multipart import Source
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Uploaded
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer import __main__, inputs
from rl_trainer import attempt as trainer_attempt
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Rates, Update
from rl_trainer.checkpoint import base_model, parts
from rl_trainer.checkpoint.saved import Saved, State, put_back
from rl_trainer.context import uploads
from rl_trainer.distributed import mesh as meshes
from rl_trainer.distributed.signed import Signer
from rl_trainer.distributed.world import World
from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import sharding
from rl_trainer.rollouts.rank_work import RankWork
from tests.garbage import collect_rarely
from tests.models import states
from tests.models.tiny_model import VOCABULARY, tiny_model

DEADLINE_SECONDS = 300.0
"""For hangs alone."""
SPEC: dict[str, Any] = {
    "model": {"uri": "s3://models/tiny"},
    "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
    "reward": {"scorers": [{"kind": "ExactMatch"}]},
    "samplers": [{"name": "main"}],
}
Work = Callable[[World, Path], object]


def together(
    work: Work,
    *,
    size: int = 1,
    mesh: MeshSizes | None = None,
    folder: Path,
    scratch: Path,
) -> list[Any]:
    """Run ``work(world, folder)`` on so many ranks; what each returned, by rank.

    Args:
        work: what each rank does.
        size: the number of ranks, that divide the model as FSDP does.
        mesh: another division of a model, and its number of ranks.
        folder: for ``work``.
        scratch: for what the ranks write.

    Raises:
        AssertionError: a rank failed.
    """
    sizes = mesh or MeshSizes(fsdp=size)
    size = sizes.processes
    context = _context()
    rendezvous = scratch / f"rendezvous-{size}-{len(list(scratch.iterdir()))}"
    files = [scratch / f"{rendezvous.name}-{rank}.pt" for rank in range(size)]
    given = [(work, rank, sizes, folder, rendezvous, file) for rank, file in enumerate(files)]
    processes = [context.Process(target=_rank, args=arguments, daemon=True) for arguments in given]
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_SECONDS)
        assert process.exitcode == 0, (
            f"{process.name} ended with {process.exitcode}; its words are above"
        )
    return [torch.load(file, weights_only=False) for file in files]


Death = Literal[
    "",
    "published",
    "read",
    "checkpoint asked",
    "checkpoint written",
    "checkpoint indexed",
    "checkpoint uncommitted",
    "checkpoint committed",
]
"""When a process is killed: never, once its part of a policy lies in the bucket, or once it has
read its share of the second step. In its second checkpoint: before it writes its part, between the
files and their index, or after both; rank 0 before or after it writes the manifest."""


def attempt(
    environment: Mapping[str, str],
    *,
    dies: Death = "",
    reads: Path | None = None,
    patience_seconds: float | None = None,
    no_room_for: str = "",
) -> ForkServerProcess:
    """Start ``python -m rl_trainer`` with an environment, without the seconds its imports take.

    Args:
        environment: of the pod.
        dies: when it is killed.
        reads: where it writes the id of each rollout that it reads whole, one a line.
        patience_seconds: how long it waits for a store; None: as every trainer.
        no_room_for: folder of a model (``downloads``) for which its disk is too full.
    """
    given = (dict(environment), dies, reads, patience_seconds, no_room_for)
    process = _context().Process(target=_attempt, args=given, daemon=True)
    process.start()
    return process


def _attempt(
    environment: dict[str, str],
    dies: Death,
    reads: Path | None,
    patience_seconds: float | None,
    no_room_for: str,
) -> None:
    os.environ.update(environment)
    tempfile.tempdir = None  # as a fresh process, which has read no TMPDIR yet
    if patience_seconds is not None:
        PATCH.setattr(trainer_attempt, "PATIENCE_SECONDS", patience_seconds)
    torch.set_num_threads(1)
    if dies == "published":
        PATCH.setattr(uploads, "upload", _upload_and_die)
    elif dies == "read":
        PATCH.setattr(RankWork, "train", _die_at_the_second_step)
    elif dies.startswith("checkpoint"):
        _die_in_the_second_checkpoint(dies)
    if reads is not None:
        PATCH.setattr(RolloutStore, "_find", _noting(reads))
    if no_room_for:
        PATCH.setattr(base_model, "check_room", _full_for(no_room_for))
    __main__.main()


def _die_at_the_second_step(
    self: RankWork, *, step: int, batch: str = "", rates: Rates | None = None
) -> Update:
    if step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return TRAIN(self, step=step, batch=batch, rates=rates)


def _die_in_the_second_checkpoint(dies: Death) -> None:
    asked, committed = itertools.count(1), itertools.count(1)

    def write(*given: Any, **named: Any) -> list[FileEntry]:
        second = next(asked) == 2
        if second and dies == "checkpoint asked":
            _die()
        if second and dies == "checkpoint written":
            PATCH.setattr(parts, "PartIndex", _dying)  # made behind the files
        files = WRITE(*given, **named)
        if second and dies == "checkpoint indexed":
            _die()
        return files

    def commit(objects: Objects, prefix: str, described: Manifest) -> Uploaded:
        second = described.kind == "checkpoint" and next(committed) == 2
        if second and dies == "checkpoint uncommitted":
            _die()
        uploaded = COMMIT(objects, prefix, described)
        if second and dies == "checkpoint committed":
            _die()
        return uploaded

    PATCH.setattr(parts, "write", write)
    PATCH.setattr(artifacts, "commit", commit)


def _dying(*_: object, **__: object) -> NoReturn:
    _die()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def _noting(reads: Path) -> Callable[..., Any]:
    def find(self: RolloutStore, ids: list[str], fields: Collection[str] | None) -> Any:
        if fields is None:
            with reads.open("a") as file:
                file.writelines(f"{name}\n" for name in ids)
        return FIND(self, ids, fields)

    return find


def _full_for(name: str) -> Callable[..., None]:
    def check(needed: int, folder: Path, *, what: str) -> None:
        full = folder.name == name
        check_room(needed, folder, what=what, free=(lambda _: 0) if full else free_bytes)

    return check


def _upload_and_die(
    files: uploads.PartFiles, prefix: str, wanted: Sequence[tuple[str, Source, int]]
) -> None:
    assert wanted, "this rank has no tensors: the test shows nothing"
    UPLOAD(files, prefix, wanted)
    os.kill(os.getpid(), signal.SIGKILL)


PATCH = pytest.MonkeyPatch()
"""Of a process that dies or ends with its attempt: nothing is undone."""
UPLOAD = uploads.upload
TRAIN = RankWork.train
WRITE, COMMIT = parts.write, artifacts.commit
FIND = RolloutStore._find


def _context() -> ForkServerContext:
    """One process imports the trainer and forks the others."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _rank(
    work: Work, rank: int, sizes: MeshSizes, folder: Path, rendezvous: Path, file: Path
) -> None:
    size = sizes.processes
    collect_rarely()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=DEADLINE_SECONDS / 2),
    )
    mesh = meshes.build("cpu", sizes)
    store = dist.FileStore(f"{rendezvous}-store", size)
    world = World(rank=rank, size=size, mesh=mesh, store=store, signer=Signer(b"key"))
    torch.save(work(world, folder), file)
    dist.destroy_process_group()


def learner(folder: Path, world: World, **sections: Any) -> Learner:
    """A learner of the tiny model, on this rank."""
    training = {"steps": 10, "precision": "FP32", **sections.pop("training", {})}
    spec = RLJobSpec.model_validate(SPEC | {"training": training} | sections)
    low_rank = spec.training.lora
    quantize = None if low_rank is None else low_rank.quantization
    policy = loading.load(
        folder,
        precision=spec.training.precision,
        uri="s3://models/tiny",
        recompute=bool(spec.training.gradient_checkpointing),
        offload_parameters=spec.training.offload_parameters and world.mesh is not None,
        quantize=quantize,
        divided=world.mesh is not None,
    )
    teacher = None
    if spec.algorithm.distils:
        other = tiny_model(seed=9, num_hidden_layers=1)
        teacher = dataclasses.replace(policy, module=other, stored=None)
    adapter = inputs.adapter_of(folder, policy, spec)
    return Learner(policy, spec, teacher=teacher, adapter=adapter, world=world)


def samples(*, seed: int, count: int = 9) -> list[Sample]:
    """Ragged sequences of three groups."""
    generator = torch.Generator().manual_seed(seed)
    return [_sample(index, generator) for index in range(count)]


def _sample(index: int, generator: torch.Generator) -> Sample:
    length = int(torch.randint(3, 30, (), generator=generator))
    mask = torch.rand(length, generator=generator) < 0.6
    mask[0], mask[-1] = False, True
    logprobs = -2.8 + 0.2 * torch.randn(length, generator=generator)
    generated = int(mask.sum())
    return Sample(
        tokens=torch.randint(VOCABULARY, (length,), generator=generator),
        mask=mask,
        logprobs=torch.where(mask, logprobs, torch.zeros(())),
        temperature=1.0,
        policy_steps=torch.zeros(length, dtype=torch.int32),
        rollout=f"rollout-{index}",
        group=f"group-{index % 3}",
        token_advantages=torch.randn(generated, generator=generator),
        returns=torch.randn(generated, generator=generator),
    )


def gradients(learner: Learner) -> dict[str, Tensor]:
    """Of all parameters, whole."""
    gradients = {name: parameter.grad for name, parameter in learner.parameters.items()}
    return {
        name: sharding.full(grad).clone() for name, grad in gradients.items() if grad is not None
    }


def weights(learner: Learner) -> dict[str, Tensor]:
    """Of all parameters, whole."""
    return {name: sharding.full(it.detach()).clone() for name, it in learner.parameters.items()}


def resumed(
    into: Learner, state: dict[str, Tensor], *, controls: Controls | None = None
) -> Learner:
    """A fresh learner that goes on behind a step of another.

    Args:
        into: the fresh one, which is changed.
        state: ``states.state`` of the other.
        controls: the other's; None: the fresh one's own.
    """
    saved = Saved(tensors=states.stored(state), state=about(into, controls=controls))
    put_back(saved, into)
    return into


def about(learner: Learner, *, controls: Controls | None = None) -> State:
    """What a checkpoint says of a learner besides its tensors; ``controls``: its own if None."""
    return State(
        step=1,
        head="",
        next_sequence=0,
        totals=Totals(),
        metrics=[],
        controls=controls or learner.controls,
        adapter=learner.policy.adapter,
    )


def check_same(tensors: dict[str, Tensor], other: dict[str, Tensor], what: str) -> None:
    assert tensors.keys() == other.keys(), what
    for name, tensor in tensors.items():
        assert torch.equal(other[name], tensor), f"{what}: {name}"
