"""A sampler in the test's process: honest rollouts of the published policy, from the real stores.

It plays the agent's part of the contract with transformers in place of an engine: follows the
policy pointer, claims, generates, scores, writes rollouts, completes.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.rollout import (
    GREEDY_TEMPERATURE,
    Rollout,
    StopReason,
    VersionSpan,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.errors import ObjectMissingError
from rl_contracts.stores.connect import Stores
from tests.models.tiny_model import ASSISTANT, END, tiny_model, tiny_tokenizer
from tests.samples.documents import a_rollout, a_sampler
from tests.waiting import HUNG_SECONDS

MAX_NEW_TOKENS = 3
LEASE_SECONDS = 30.0
POLL_SECONDS = 0.05
"""Between two looks for work: the threads of all samplers share a processor with the trainer."""


def score(task: Task, tokens: list[int]) -> float:
    """1 when the response begins with the answer."""
    return float(tokens[0] == int(task.answer))


@dataclass
class TestSampler:
    """One sampler; ``seed`` makes its draws."""

    __test__ = False

    stores: Stores
    run: str
    name: str = "a"
    seed: int = 0
    reward: Callable[[Task, list[int]], float] = score
    spoil: Callable[[Rollout], Rollout] = lambda rollout: rollout
    fail: str = ""
    """When set, every train task is handed back for this reason."""
    too_long: Callable[[Task], bool] = lambda task: False
    """Tasks whose prompt it cannot process."""
    pause_seconds: float = 0.0
    """Before each answer, as of a slow engine."""
    max_staleness: int | None = None
    """When set it claims, as the agent does, only while what it holds can still be trained."""
    rest_at: int = 0
    """When set, nothing is claimed to train once so many steps are made. What was answered before
    lets the trainer go at most ``maxStaleness`` steps further: it does not end by itself."""
    most: Callable[[int], int] | None = None
    """When set, so many train tasks are answered at most when so many steps are made."""
    hold: int = 0
    """When set, versions after this one are not loaded."""
    held: PolicyPointer | None = None
    answered: int = 0
    """Train tasks."""
    served: set[int] = field(default_factory=set)
    policies: dict[int, PolicyPointer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._model: Any = tiny_model()
        self._model.eval()
        self._tokenizer = tiny_tokenizer()
        self._generator = torch.Generator().manual_seed(self.seed)

    def work(self, stopped: threading.Event) -> None:
        """Serve until stopped; any error ends it and is raised by ``sampling``."""
        registration = a_sampler(
            self.name,
            run=self.run,
            id=f"{self.run}.sampler.{self.name}",
            scorers=["ExactMatch"],
        )
        beaten = 0.0
        while not stopped.is_set():
            if time.monotonic() - beaten > 1:
                beaten, now = time.monotonic(), self.stores.mongo.now()
                version = self.held.version if self.held else 0
                update = {"heartbeat_at": now, "state": SamplerState.READY, "version": version}
                self.stores.samplers.put([registration.model_copy(update=update)])
            if not self._turn():
                stopped.wait(POLL_SECONDS)

    def _turn(self) -> bool:
        run = self.stores.runs.get(self.run)
        if run is None or run.policy is None:
            return False
        fresh = self.held is None or self.held.version != run.policy.version
        if fresh and not (self.hold and run.policy.version > self.hold):
            with suppress(ObjectMissingError):  # an agent tries again, too
                self._load(run.policy)
        if self.held is None:
            return False
        bound = self.max_staleness
        too_old = bound is not None and self.held.step < run.step - bound
        rests = bool(self.rest_at) and run.step >= self.rest_at
        enough = self.most is not None and self.answered >= self.most(run.step)
        queues = [] if too_old or rests or enough else [Queue.TRAIN]
        if self.held.version == run.policy.version:
            queues.insert(0, Queue.EVALUATION)
        for queue in queues:
            task = self.stores.tasks.claim(
                self.run,
                queue=queue,
                owner=self.name,
                lease_seconds=LEASE_SECONDS,
                policy_step=self.held.step,
            )
            if task is not None:
                self._answer(task)
                return True
        return False

    def _load(self, pointer: PolicyPointer) -> None:
        stored = self.stores.objects.get(pointer.prefix + "manifest.json")
        manifest = Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)
        assert (manifest.version, manifest.epoch) == (pointer.version, pointer.epoch)
        with tempfile.TemporaryDirectory() as name:
            for entry in manifest.files:
                path = Path(name) / entry.name
                self.stores.objects.get_file(pointer.prefix + entry.name, path, sha256=entry.sha256)
                self._model.load_state_dict(load_file(path), strict=False)
        self._model.tie_weights()
        self.held = pointer
        self.served.add(pointer.version)
        self.policies[pointer.version] = pointer

    def _answer(self, task: Task) -> None:
        assert self.held is not None
        if task.queue == Queue.EVALUATION and task.evaluation_version != self.held.version:
            self.stores.tasks.hand_back(task, reason="another version")
            return
        if self.fail and task.queue == Queue.TRAIN:
            self.stores.tasks.hand_back(task, reason=self.fail)
            return
        if self.too_long(task):
            self.stores.tasks.kill(task, reason="the prompt is too long", cause=Cause.PROMPT)
            return
        time.sleep(self.pause_seconds)
        rollouts = [self.spoil(rollout) for rollout in self._rollouts(task)]
        self.stores.rollouts.put(rollouts)
        self.stores.tasks.complete(task, rollouts=[rollout.id for rollout in rollouts])
        self.answered += task.queue == Queue.TRAIN

    def _rollouts(self, task: Task) -> list[Rollout]:
        assert self.held is not None
        text = "".join(f"<{message.role}>{message.text}<end>" for message in task.messages)
        prompt = self._tokenizer(text + "<assistant>")["input_ids"]
        assert prompt[-1] == ASSISTANT
        members = self._generate(
            prompt,
            count=task.group_size,
            temperature=task.temperature or GREEDY_TEMPERATURE,
            greedy=task.temperature == 0,
        )
        if task.baseline:
            members += self._generate(prompt, count=1, temperature=GREEDY_TEMPERATURE, greedy=True)
        return [
            self._rollout(task, member, prompt=prompt, tokens=tokens, logprobs=logprobs)
            for member, (tokens, logprobs) in enumerate(members)
        ]

    def _rollout(
        self,
        task: Task,
        member: int,
        *,
        prompt: list[int],
        tokens: list[int],
        logprobs: list[float],
    ) -> Rollout:
        assert self.held is not None
        start, end = len(prompt), len(prompt) + len(tokens)
        held = self.held
        span = VersionSpan(version=held.version, step=held.step, start=start, end=end)
        greedy = task.is_greedy(member)
        return a_rollout(
            task,
            member,
            sampler=self.name,
            temperature=GREEDY_TEMPERATURE if greedy else task.temperature,
            greedy=greedy,
            tokens=pack_int32([*prompt, *tokens]),
            mask=bytes(start) + bytes([1] * len(tokens)),
            logprobs=pack_float32([0.0] * start + logprobs),
            spans=[span],
            text=self._tokenizer.decode(tokens),
            stop_reason=StopReason.STOP if tokens[-1] == END else StopReason.LENGTH,
            reward=self.reward(task, tokens),
        )

    @torch.no_grad()
    def _generate(
        self, prompt: list[int], *, count: int, temperature: float, greedy: bool = False
    ) -> list[tuple[list[int], list[float]]]:
        given = torch.tensor([prompt] * count)
        kept = []
        for _ in range(MAX_NEW_TOKENS):
            logits = self._model(input_ids=given, use_cache=False).logits[:, -1]
            distribution = (logits / temperature).log_softmax(-1)
            drawn = (
                distribution.argmax(-1, keepdim=True)
                if greedy
                else torch.multinomial(distribution.exp(), 1, generator=self._generator)
            )
            kept.append(distribution.gather(-1, drawn))
            given = torch.cat([given, drawn], dim=1)
        rows = zip(given[:, len(prompt) :].tolist(), torch.cat(kept, 1).tolist(), strict=True)
        return [
            (tokens[:length], logprobs[:length])
            for tokens, logprobs in rows
            for length in [tokens.index(END) + 1 if END in tokens else len(tokens)]
        ]


@contextmanager
def sampling(*samplers: TestSampler) -> Iterator[None]:
    """Let samplers work; raises what ended one of them."""
    stopped = threading.Event()
    with ThreadPoolExecutor(len(samplers)) as executor:
        jobs: list[Future[None]] = [executor.submit(sampler.work, stopped) for sampler in samplers]
        try:
            yield
        finally:
            stopped.set()
        for job in jobs:
            job.result(timeout=HUNG_SECONDS)
