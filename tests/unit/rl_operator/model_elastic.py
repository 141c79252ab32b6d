"""A job whose trainer is elastic, on the model cluster; nodes come and go."""

from __future__ import annotations

import dataclasses
from typing import Any

from rl_operator.kube import names
from rl_operator.kube.kinds import PYTORCH_JOB
from rl_operator.state.decisions import Decision
from tests.unit.rl_operator.builders import a_pod
from tests.unit.rl_operator.model_life import Life

LEAST, MOST = 1, 3


class ElasticLife(Life):
    """A job with ``trainer.elastic``; each node takes one pod of the trainer."""

    def __init__(self, **lifecycle: Any) -> None:
        super().__init__(**lifecycle)
        bounds = {"minReplicas": LEAST, "maxReplicas": MOST}
        self.sections = {"trainer": {"replicas": 2, "elastic": bounds}}
        self.nodes = MOST

    def reconcile(self, **faults: Any) -> Decision | None:
        self.cluster.now = self.now
        return super().reconcile(**faults)

    def end_trainer(self, exit_code: int, **words: Any) -> None:
        """One pod ends, and training-operator ends the others."""
        super().end_trainer(exit_code, **words)
        ended = self.pods.get(f"{names.trainer('job', self.status.attempt)}-worker-0")
        if ended is not None and not ended.live:
            attempt = ended.attempt
            of_it = [pod.name for pod in self.pods.values() if pod.attempt == attempt and pod.live]
            self._delete(of_it)

    def _trainers(self) -> None:
        super()._trainers()
        for (kind, name), raw in self.cluster.objects.items():
            if kind == PYTORCH_JOB.name and "status" not in raw:
                size = raw["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
                attempt = int(raw["metadata"]["labels"][names.ATTEMPT_LABEL])
                for number in range(size):
                    self._make(f"{name}-worker-{number}", attempt, raw["metadata"]["uid"])
        self._schedule()

    def _make(self, name: str, attempt: int, owner: str) -> None:
        pod = self.pods.get(name)
        if pod is None or (pod.started_at is not None and not pod.conditions):
            self._owners[name] = owner
            self.pods[name] = a_pod(
                name=name,
                uid=name,
                attempt=attempt,
                created_at=self.now,
                started_at=None,
                phase="Pending",
                ready=False,
                unscheduled="0/3 nodes are available.",
            )

    def _schedule(self) -> None:
        """Pods that wait get the nodes that are free, the oldest first."""
        trainers = [pod for pod in self.pods.values() if pod.component == "trainer" and pod.live]
        taken = sum("PodScheduled" in trainer.conditions for trainer in trainers)
        for pod in trainers:
            if pod.unscheduled and not pod.deleting and taken < self.nodes:
                taken += 1
                self.pods[pod.name] = dataclasses.replace(
                    pod,
                    phase="Running",
                    ready=True,
                    started_at=self.now,
                    unscheduled="",
                    conditions=("PodScheduled", "Ready"),
                )
