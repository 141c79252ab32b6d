"""Kubernetes Jobs that work with a model: made, waited for, deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.placement import placed
from rl_console.actions.models.pod import Manifest, container, template
from rl_console.actions.models.pod_state import PodState, newest_pod
from rl_console.actions.models.waiting import Wait
from rl_console.cluster.kube import Cluster
from rl_console.errors import ClusterUnavailableError, NotFoundError, RequestRefusedError
from rl_contracts.spec.status import ImagesStatus

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
    own = container("model", choice, images, [*arguments, *choice.arguments])
    pod = placed(template(choice, images, containers=[own]), choice.group(), as_stage="model")
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
class Working:
    """A Job at work."""

    cluster: Cluster
    namespace: str
    name: str
    waits: Wait

    def _state(self) -> PodState:
        """Of the newest pod; what it does is said once."""
        label, of = f"job-name={self.name}", f"Job {self.namespace}/{self.name}"
        newest = newest_pod(self.cluster, self.namespace, label=label, of=of)
        state = PodState() if newest is None else PodState.of(newest)
        self.waits.tell(state.doing)
        return state

    def wait(self, until: Callable[[PodState], bool]) -> PodState:
        """Wait for a state.

        Raises:
            RequestRefusedError: the program failed; with what it said.
            TimeOverError: at the deadline.
        """
        while True:
            state = self._state()
            if until(state):
                return state
            if state.phase == "Failed" and self._is_over():
                cause = state.message or f"{state.doing}: it left no message"
                raise RequestRefusedError(doing=f"working in pod {state.name}", cause=cause)
            if state.phase == "Succeeded":
                cause = f"its program has ended: {state.message}"
                raise RequestRefusedError(doing=f"working in pod {state.name}", cause=cause)
            self.waits.pause(f"Job {self.name} is not done")

    def _is_over(self) -> bool:
        """Whether no other pod will replace the one that failed."""
        doing = f"reading Job {self.namespace}/{self.name}"
        status = self.cluster.api.request("GET", self._path, doing=doing)["status"]
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
        waits=Wait(seconds=seconds),
    )
    try:
        yield job
    finally:
        job.delete()
