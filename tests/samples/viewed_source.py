"""A source of the dashboard with made up objects of Kubernetes and real stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rl_console.errors import NotFoundError
from rl_contracts.queries.answering import Answering
from rl_contracts.queries.answers import Answer
from rl_contracts.queries.kinds import QUERY, Message
from rl_contracts.stores.connect import Stores
from tests.samples.viewed_run import SECONDS_PER_STEP, START, Shape


def when(step: float) -> str:
    """The time of a step as Kubernetes writes it."""
    moment = datetime.fromtimestamp(START + SECONDS_PER_STEP * step, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def a_raw_job(shape: Shape, *, phase: str = "Running", text: str = "") -> dict[str, Any]:
    """An RLJob as the API server has it."""
    steps = shape.steps

    def condition(kind: str, status: str, reason: str, message: str, at: float) -> dict[str, Any]:
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message + text,
            "lastTransitionTime": when(at),
            "observedGeneration": 1,
        }

    return {
        "apiVersion": "rl-operator.io/v1alpha1",
        "kind": "RLJob",
        "metadata": {
            "name": shape.job,
            "namespace": shape.namespace,
            "uid": shape.name,
            "generation": 1,
        },
        "spec": {"model": {"uri": "s3://rl-data/models/qwen3-0.6b"}},
        "status": {
            "phase": phase,
            "runId": shape.name,
            "startTime": when(0),
            "failures": 1,
            "progress": {
                "step": steps,
                "steps": steps + 5,
                "reward": 0.81,
                "accuracy": 0.8,
                "tokensPerSecond": 2711.4,
                "phase": "training",
            },
            "weights": {"version": steps, "lag": 1},
            "samplers": {"ready": 2, "desired": 3},
            "conditions": [
                condition("Ready", "True", "Training", "The trainer has what it needs.", 1),
                condition("LearningSignal", "True", "Rewarded", "Rewards differ.", steps * 0.3),
                condition("WeightsCurrent", "False", "Lagging", "1 of 3 samplers.", steps * 0.8),
            ],
            "attempts": [
                {
                    "attempt": 1,
                    "result": "Failed",
                    "reason": "OutOfMemory",
                    "startTime": when(0),
                    "endTime": when(steps * 0.4),
                },
                {
                    "attempt": 2,
                    "result": "Suspended",
                    "startTime": when(steps * 0.42),
                    "endTime": when(steps * 0.6),
                },
                {"attempt": 3, "result": "Active", "startTime": when(steps * 0.62)},
            ],
            "lastFailure": {
                "attempt": 1,
                "reason": "OutOfMemory",
                "message": "The trainer needed 83 GiB of 80." + text,
                "time": when(steps * 0.4),
            },
        },
    }


def a_raw_pool(shape: Shape) -> dict[str, Any]:
    """A SamplerPool as the API server has it."""
    scale = {"before": 2, "after": 3, "reason": "Backlog", "message": "12 prompts wait."}
    return {
        "metadata": {"name": f"{shape.job}-main", "namespace": shape.namespace},
        "spec": {"job": shape.job, "replicas": 3},
        "status": {
            "ready": 2,
            "serving": 2,
            "version": shape.steps - 1,
            "lag": 1,
            "lastScale": [{**scale, "time": when(shape.steps * 0.5)}],
        },
    }


@dataclass
class ViewedSource:
    """Runs by their shape, in real stores."""

    stores: Stores
    shapes: dict[tuple[str, str], Shape] = field(default_factory=dict)
    phases: dict[tuple[str, str], str] = field(default_factory=dict)
    text: str = ""
    """Appended to every message."""
    answering: Answering = field(default_factory=Answering)

    def add(self, shape: Shape, *, phase: str = "Running") -> None:
        """Show a run that ``viewed_run.fill`` has written."""
        self.shapes[shape.namespace, shape.job] = shape
        self.phases[shape.namespace, shape.job] = phase

    def jobs(self, namespace: str) -> list[dict[str, Any]]:
        return [
            a_raw_job(shape, phase=self.phases[key], text=self.text)
            for key, shape in self.shapes.items()
            if namespace in ("", key[0])
        ]

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        shape = self.shapes.get((namespace, name))
        if shape is None:
            raise NotFoundError(doing=f"reading RLJob {namespace}/{name}")
        return a_raw_job(shape, phase=self.phases[namespace, name], text=self.text)

    def pools(self, namespace: str) -> list[dict[str, Any]]:
        return [a_raw_pool(shape) for key, shape in self.shapes.items() if key[0] == namespace]

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        shape = self.shapes[namespace, name]
        return [
            {
                "type": "Warning",
                "reason": "SamplerLost",
                "note": "Pod job-main-x was killed." + self.text,
                "eventTime": when(shape.steps * 0.7),
            }
        ]

    def ask(self, namespace: str, job: str, query: Message, *, patient: bool = True) -> Answer:
        shape = self.shapes.get((namespace, job))
        if shape is None:
            raise NotFoundError(doing=f"reading RLJob {namespace}/{job}")
        parsed = QUERY.validate_python(query.model_dump())
        return self.answering.answer(
            self.stores, parsed, run=shape.name, namespace=namespace, tokenizer=""
        )
