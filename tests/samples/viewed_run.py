"""A run with everything that viewers show, in real stores."""

from __future__ import annotations

import functools
import io
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_contracts import ids
from rl_contracts.documents import metric_columns
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import Batch, BatchMember, BatchState, TrainedDigest
from rl_contracts.documents.evaluation import Evaluation, EvaluationResult
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.rollout import (
    ImageSpan,
    RewardPart,
    Rollout,
    TokenRange,
    ToolCall,
    Turn,
    VersionSpan,
)
from rl_contracts.documents.run import Notice, PolicyPointer, Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Cause, ImagePart, Message, Queue, Task, TaskState
from rl_contracts.stores import reports
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore
from tests.samples.documents import a_result, a_rollout, a_run, a_sampler, a_step, a_task

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31mred\x1b[0m \u202egnp.exe \x00"
)
"""HTML, ANSI, a right-to-left override, a NUL."""
START = 1_790_000_000.0
SECONDS_PER_STEP = 30.0
WORDS = ("the", "sum", "of", "two", "numbers", "is", "carry", "one", "so", "answer", "check", "add")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a run is."""

    steps: int = 12
    groups: int = 2
    members: int = 2
    filed: int | None = None
    """Steps that metrics.columns holds; None: all."""
    rolled: int | None = None
    """Newest steps that have batches, tasks and rollouts; None: all."""
    tokens: int = 48
    hostile: bool = False
    epochs: Sequence[int] = (7,)
    """Of the trainers; the steps are shared among them evenly."""
    name: str = "run1"
    job: str = "job"
    namespace: str = "ns"
    screens: bool = False
    """Each rollout has an image in its prompt, and another one in the result of its call."""
    tail_metrics: bool = True
    evaluated: Sequence[EvaluationResult] = ()
    """By the last evaluation, in place of a single result."""
    extra: dict[str, float] = field(default_factory=dict)


SCREENS, SCREEN_WIDTH, SCREEN_HEIGHT = 6, 448, 280


@functools.cache
def screen(number: int) -> bytes:
    """A screenshot with one filled button among others, as PNG."""
    from PIL import Image, ImageDraw  # benchmarks of runs without images need none of it

    image = Image.new("RGB", (SCREEN_WIDTH, SCREEN_HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    for place in range(SCREENS):
        left, top = 28 + 140 * (place % 3), 56 + 112 * (place // 3)
        fill_ = "#1a7f37" if place == number else "#d0d7de"
        draw.rectangle((left, top, left + 112, top + 70), fill=fill_, outline="black")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def screens_of(stores: Stores, run: str, task: Task) -> list[ImagePart]:
    """The two images of a task's rollouts, stored."""
    images = ImageStore(stores.objects, run_prefix=stores.run_prefix(run))
    first = 2 * task.sequence % SCREENS
    return [
        ImagePart(sha256=images.put(screen(number)), width=SCREEN_WIDTH, height=SCREEN_HEIGHT)
        for number in (first, first + 1)
    ]


def _with_screens(stores: Stores, rollout: Rollout, task: Task) -> Rollout:
    prompt, result = screens_of(stores, rollout.run, task)
    span = ImageSpan(sha256=prompt.sha256, width=prompt.width, height=prompt.height, start=2, end=6)
    (turn,) = rollout.turns
    calls = [call.model_copy(update={"images": [result]}) for call in turn.calls]
    changed = {"images": [span], "turns": [turn.model_copy(update={"calls": calls})]}
    return rollout.model_copy(update=changed)


def a_metric(step: int, *, of: int, epoch: int) -> StepMetrics:
    """Metrics that look like those of a run that learns."""
    chance = random.Random(step)
    done = step / max(1, of)
    reward = 0.9 / (1 + math.exp(-8 * (done - 0.4))) + chance.gauss(0, 0.03)
    return a_step(
        step,
        epoch=epoch,
        time=START + SECONDS_PER_STEP * step,
        reward_mean=reward,
        reward_std=0.2 + chance.random() * 0.1,
        reward_min=0.0,
        reward_max=1.0,
        reward_parts={"exact": reward, "format": min(1.0, 0.5 + done)},
        loss=chance.gauss(0, 0.02),
        gradient_norm=1 + chance.random() + (20 if step % 997 == 0 else 0),
        learning_rate=1e-6,
        logprob_gap_mean=1e-3 * (1 + chance.random()),
        staleness_mean=1 + chance.random(),
        staleness_max=2,
        tokens=4000 + chance.randrange(500),
        rollouts=16,
        kl=0.01 * done + chance.random() * 0.002,
        entropy=1.2 - 0.8 * done + chance.random() * 0.05,
        clip_fraction=0.02 * chance.random(),
        response_tokens_mean=200 + 100 * done + chance.gauss(0, 10),
        wait_seconds=4.0 + chance.random(),
        train_seconds=12 + chance.random(),
        seconds={"train": 12.0 + chance.random(), "wait": 4.0, "publish": 1.5, "form": 0.2},
        tokens_per_second=330 + 20 * chance.random(),
        mfu=0.31 + 0.02 * chance.random(),
        policy_version=step,
        dropped_share=0.05 * chance.random(),
    )


def fill(stores: Stores, shape: Shape) -> Run:
    """Write a run into the stores; returns its document."""
    run = ids.RunId(shape.name)
    epochs = {
        step: shape.epochs[(step - 1) * len(shape.epochs) // shape.steps]
        for step in range(1, shape.steps + 1)
    }
    metrics = [a_metric(step, of=shape.steps, epoch=epoch) for step, epoch in epochs.items()]
    filed = metrics[: shape.steps if shape.filed is None else shape.filed]
    prefix = stores.run_prefix(run)
    if filed:
        key = reports.key(prefix, reports.COLUMNS, epoch=shape.epochs[-1])
        stores.objects.put(key, metric_columns.encode(filed))
    first = 1 if shape.rolled is None else max(1, shape.steps - shape.rolled + 1)
    for begin in range(first, shape.steps + 1, 500):
        _put_steps(stores, shape, range(begin, min(begin + 500, shape.steps + 1)), epochs, metrics)
    head = ids.batch_id(run, shape.steps, epochs[shape.steps])
    _put_rest(stores, shape, run, epochs)
    document = a_run(
        id=run,
        namespace=shape.namespace,
        job=shape.job,
        created_at=START,
        steps=shape.steps + 5,
        step=shape.steps,
        epoch=shape.epochs[-1],
        trainers=len(shape.epochs),
        head_batch=head,
        last_version=shape.steps,
        policy=PolicyPointer(
            version=shape.steps,
            epoch=epochs[shape.steps],
            step=shape.steps,
            prefix=f"runs/{run}/policies/x",
            manifest_sha256="0" * 64,
        ),
        heartbeat_at=START + SECONDS_PER_STEP * shape.steps,
        latest=metrics[-1],
        last_evaluation=ids.evaluation_id(run, 1, shape.epochs[0]),
        phase="training",
        notices=[
            Notice(
                time=START + 90.0, reason="StoreRestored", message="The store lost steps 3 to 4."
            )
        ],
    )
    stores.runs.create(document)
    return document


def _put_rest(stores: Stores, shape: Shape, run: ids.RunId, epochs: dict[int, int]) -> None:
    evaluations = [
        Evaluation(
            id=ids.evaluation_id(run, number, shape.epochs[0]),
            run=run,
            epoch=shape.epochs[0],
            parent=ids.evaluation_id(run, number - 1, shape.epochs[0]) if number else None,
            results=list(results),
        )
        for number, results in enumerate(
            (
                [a_result(0, accuracy=0.1)],
                shape.evaluated or [a_result(shape.steps, accuracy=0.8)],
            )
        )
    ]
    stores.evaluations.put(evaluations)
    versions = range(max(1, shape.steps - 100), shape.steps + 1)
    stores.policies.put(
        [
            PolicyRecord(
                id=ids.policy_id(run, version, epochs[version]),
                run=run,
                version=version,
                epoch=epochs[version],
                step=version,
                parent=version - 1,
                prefix=f"runs/{run}/policies/{version:08d}",
                manifest_sha256="ab" * 32,
                size_bytes=123_456_789,
                published_at=START + SECONDS_PER_STEP * version + 2,
                publish_seconds=1.5,
            )
            for version in versions
        ]
    )
    stores.samplers.put(
        [
            a_sampler(
                f"{run}-{name}",
                id=ids.sampler_id(run, name),
                run=run,
                version=shape.steps - place,
                tokens_per_second=900.0,
                groups_done=40,
                heartbeat_at=stores.mongo.now() if place < 2 else 1.0,
            )
            for place, name in enumerate("abc")
        ]
    )


def _put_steps(
    stores: Stores,
    shape: Shape,
    steps: range,
    epochs: dict[int, int],
    metrics: Sequence[StepMetrics],
) -> None:
    run = ids.RunId(shape.name)
    tasks: list[Task] = []
    rollouts: list[Rollout] = []
    batches: list[Batch] = []
    for step in steps:
        groups = [
            _task(shape, run, (step - 1) * (shape.groups + 1) + place)
            for place in range(shape.groups + 1)
        ]
        *trained, dropped = groups
        own = [
            _rollout(shape, task, member, step=step)
            for task in trained
            for member in range(shape.members)
        ]
        if shape.screens:
            tasks_by_id = {task.id: task for task in trained}
            own = [_with_screens(stores, each, tasks_by_id[each.task]) for each in own]
        names: dict[str, list[str]] = {}
        for each in own:
            names.setdefault(each.task, []).append(each.id)
        tasks += [
            task.model_copy(update={"rollouts": names[task.id], "created_step": step - 1})
            for task in trained
        ]
        lost = {
            "state": TaskState.DEAD,
            "cause": Cause.STALE,
            "reason": "Its oldest token was 9 steps old; maxStaleness is 4.",
        }
        tasks.append(dropped.model_copy(update=lost))
        rollouts += own
        batches.append(
            Batch(
                id=ids.batch_id(run, step, epochs[step]),
                run=run,
                step=step,
                epoch=epochs[step],
                parent=ids.batch_id(run, step - 1, epochs[step - 1]) if step > 1 else None,
                state=BatchState.TRAINED,
                tasks=[task.id for task in trained],
                members=[BatchMember(rollout=each.id, advantage=each.reward - 0.5) for each in own],
                next_sequence=step * (shape.groups + 1),
                formed_at=START + SECONDS_PER_STEP * step - 14,
                digest=TrainedDigest(sha256="cd" * 32, sequences=4, tokens=96, generated=48),
                metrics=metrics[step - 1] if shape.tail_metrics else None,
            )
        )
    stores.tasks.insert(tasks)
    stores.rollouts.put(rollouts)
    stores.batches.put(batches)


def _task(shape: Shape, run: ids.RunId, sequence: int) -> Task:
    question = HOSTILE if shape.hostile else f"What is {sequence} + {sequence + 1}?"
    return a_task(
        sequence,
        id=ids.task_id(run, "train", sequence),
        run=run,
        queue=Queue.CONSUMED,
        state=TaskState.DONE,
        attempt=1,
        dataset="sums",
        messages=[Message(role="user", content=question)],
        answer=str(2 * sequence + 1),
        group_size=shape.members,
    )


def _rollout(shape: Shape, task: Task, member: int, *, step: int) -> Rollout:
    chance = random.Random(f"{task.id}.{member}")
    generated = shape.tokens // 2
    half = shape.tokens - generated
    words = " ".join(chance.choice(WORDS) for _ in range(generated))
    text = HOSTILE if shape.hostile else f"{words} #{task.sequence}.{member}"
    call = ToolCall(
        tool="calculator",
        arguments=json.dumps({"a": task.sequence, "b": HOSTILE if shape.hostile else "1"}),
        outcome="answered" if member % 2 == 0 else "failed",
        result=HOSTILE if shape.hostile else str(2 * task.sequence + 1),
        seconds=0.2,
    )
    middle = half + generated // 2
    return a_rollout(
        task,
        member,
        tokens=pack_int32([chance.randrange(20) for _ in range(shape.tokens)]),
        mask=b"\0" * half + b"\1" * generated,
        logprobs=pack_float32([0.0] * half + [-chance.expovariate(1.5) for _ in range(generated)]),
        spans=[
            VersionSpan(version=max(1, step - 2), step=step - 2, start=half, end=middle),
            VersionSpan(version=max(1, step - 1), step=step - 1, start=middle, end=shape.tokens),
        ]
        if step > 2
        else [VersionSpan(version=1, step=0, start=half, end=shape.tokens)],
        turns=[
            Turn(
                request=TokenRange(start=0, end=half),
                response=TokenRange(start=half, end=shape.tokens),
                stop_reason="stop",
                text=text,
                calls=[call],
                generate_seconds=1.5,
                tool_seconds=0.2,
            )
        ],
        text=text,
        answer=str(2 * task.sequence + 1),
        reward=float(member % 2),
        parts=[
            RewardPart(scorer="exact", value=float(member % 2), weight=1.0),
            RewardPart(scorer="format", value=0.5, weight=0.2),
        ],
    )
