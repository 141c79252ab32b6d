"""Kubernetes Jobs that work with a model: made, waited for, deleted."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.pod import Manifest, container, template
from rl_console.errors import (
    ClusterUnavailableError,
    NotFoundError,
    RequestRefusedError,
    TimeOverError,
)
from rl_console.kube import Cluster
from rl_contracts.spec.status import ImagesStatus

POLL_SECONDS = 1.0
KEPT_SECONDS = 300
"""A Job that has ended stays for as long, where nobody deletes it."""
NAME_CHARACTERS = 40
REFUSED_EXIT = 2
"""Of ``rl_sampler.models``: no later attempt can succeed."""
REFUSED_AT_ONCE = {
    "action": "FailJob",
    "onExitCodes": {"containerName": "model", "operator": "In", "values": [REFUSED_EXIT]},
}


def job_manifest(
    choice: Choice,
    images: ImagesStatus,
    *,
    verb: str,
    arguments: Sequence[str],
    seconds: float,
    retries: int = 0,
) -> Manifest:
    """A Job whose pod runs ``rl_sampler.models``.

    Args:
        choice: the model.
        images: of the pod.
        verb: for its name.
        arguments: of the program.
        seconds: after which it is ended.
        retries: how often a pod that failed is replaced.
    """
    pod = template(
        choice,
        images,
        containers=[container("model", choice, images, [*arguments, *choice.arguments])],
    )
    pod["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": f"{choice.job.name[:NAME_CHARACTERS].rstrip('-.')}-{verb}-",
            "namespace": choice.job.namespace,
            "labels": choice.labels,
            "ownerReferences": [choice.owner],
        },
        "spec": {
            "backoffLimit": retries,
            "podFailurePolicy": {"rules": [REFUSED_AT_ONCE]},
            "activeDeadlineSeconds": max(1, int(seconds)),
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": pod,
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """The newest pod of a Job."""

    name: str = ""
    """Empty: there is none yet."""
    phase: str = "Pending"
    doing: str = "waiting for a pod"
    """For a person."""
    message: str = ""
    """What the program left when it ended."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> PodState:
        """The state of a pod as the API server has it."""
        status = raw.get("status") or {}
        states = [each.get("state") or {} for each in status.get("containerStatuses") or []]
        ended = [each["terminated"] for each in states if "terminated" in each]
        waiting = [each["waiting"] for each in states if "waiting" in each]
        unscheduled = [
            f"not scheduled: {each.get('message', '')}"
            for each in status.get("conditions") or []
            if each.get("type") == "PodScheduled" and each.get("status") != "True"
        ]
        causes = [f"{each.get('reason', '')} {each.get('message', '')}".strip() for each in waiting]
        name, phase = raw["metadata"]["name"], status.get("phase") or "Pending"
        doing = [*unscheduled, *causes, phase][0]
        message = str(ended[0].get("message") or status.get("message") or "") if ended else ""
        message = message or str(status.get("message") or "")
        return cls(name=name, phase=phase, doing=f"pod {name}: {doing}", message=message.strip())


@dataclass(slots=True, kw_only=True)
class Working:
    """A Job at work."""

    cluster: Cluster
    namespace: str
    name: str
    ends: float
    """Monotonic time of the deadline."""
    seconds: float
    say: Callable[[str], None]
    _said: str = field(default="", init=False)

    def state(self) -> PodState:
        """The newest pod; what it does is said once."""
        pods = self.cluster.api.request(
            "GET",
            f"/api/v1/namespaces/{self.namespace}/pods",
            doing=f"reading the pods of Job {self.namespace}/{self.name}",
            query={"labelSelector": f"job-name={self.name}"},
        )["items"]
        newest = max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
        state = PodState() if newest is None else PodState.of(newest)
        if state.doing != self._said:
            self.say(state.doing)
            self._said = state.doing
        return state

    def wait(self, until: Callable[[PodState], bool]) -> PodState:
        """Wait for a state.

        Raises:
            RequestRefusedError: the program failed; with what it said.
            TimeOverError: at the deadline.
        """
        while True:
            state = self.state()
            if until(state):
                return state
            if state.phase == "Failed" and self._is_over():
                cause = state.message or f"{state.doing}: it left no message"
                raise RequestRefusedError(doing=f"working in pod {state.name}", cause=cause)
            if state.phase == "Succeeded":
                cause = f"its program has ended: {state.message}"
                raise RequestRefusedError(doing=f"working in pod {state.name}", cause=cause)
            if time.monotonic() > self.ends:
                raise TimeOverError(
                    f"Job {self.name} is not done after {self.seconds:.0f} s: {state.doing}",
                    remedy="Give it longer with --timeout",
                )
            time.sleep(POLL_SECONDS)

    def _is_over(self) -> bool:
        """Whether no other pod will replace the one that failed."""
        status = self.cluster.api.request("GET", self._path, doing=self._doing)["status"]
        return any(
            each["type"] == "Failed" and each["status"] == "True"
            for each in status.get("conditions") or []
        )

    def delete(self) -> None:
        """Delete it with its pods; where that fails, its time to live ends it."""
        with contextlib.suppress(NotFoundError, RequestRefusedError, ClusterUnavailableError):
            self.cluster.api.request(
                "DELETE",
                self._path,
                doing=f"deleting Job {self.namespace}/{self.name}",
                body={"propagationPolicy": "Background"},
            )

    @property
    def _path(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{self.name}"

    @property
    def _doing(self) -> str:
        return f"reading Job {self.namespace}/{self.name}"


@contextlib.contextmanager
def working(cluster: Cluster, manifest: Manifest, *, seconds: float) -> Iterator[Working]:
    """Make a Job, and delete it when the context ends."""
    namespace = manifest["metadata"]["namespace"]
    made = cluster.api.request(
        "POST",
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        doing=f"creating a Job in {namespace}",
        body=manifest,
    )
    job = Working(
        cluster=cluster,
        namespace=namespace,
        name=made["metadata"]["name"],
        ends=time.monotonic() + seconds,
        seconds=seconds,
        say=note,
    )
    try:
        yield job
    finally:
        job.delete()


def note(text: str) -> None:
    """Say what is being done, on standard error."""
    print(text, file=sys.stderr, flush=True)
