"""The pods of readers: created, replaced, refreshed and deleted."""

from __future__ import annotations

import logging

from rl_contracts.errors import RLError
from rl_operator.kube.api_errors import ClusterError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import NETWORK_POLICY, POD, Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.names import APPLIED_ANNOTATION, COMPONENT_LABEL, SPEC_MANAGER
from rl_operator.kube.settings import Images
from rl_operator.render import reader as rendered
from rl_operator.state.pod import Pod

STARTING, NOT_RUNNING = "ReaderStarting", "ReaderNotRunning"
NOT_ANSWERING = "ReaderNotAnswering"

Place = tuple[str, str]
"""Namespace and Secret of stores."""

log = logging.getLogger(__name__)


class ReaderDownError(RLError):
    """There is no answer, because the reader does not run."""

    def __init__(self, reason: str, message: str) -> None:
        """Describe it by a reason for conditions, and what Kubernetes says."""
        super().__init__(message)
        self.reason, self.message = reason, message


class ReaderLateError(ReaderDownError):
    """The reader's pod is ready and gave no usable answer: its node may be busy."""

    def __init__(self, message: str) -> None:
        """Describe what came instead of an answer."""
        super().__init__(NOT_ANSWERING, message)


class ReaderPods:
    """Keeps the pods of readers. For any thread."""

    def __init__(self, cluster: Cluster, images: Images, *, system: str) -> None:
        """Read and write nothing yet.

        Args:
            cluster: reads and writes pods.
            images: the default images.
            system: the operator's namespace.
        """
        self._cluster, self._images, self._system = cluster, images, system

    def address(self, place: Place, *, token_sha256: str) -> str:
        """IP of the pod that answers; creates or replaces the pod if need be.

        Args:
            place: of the reader.
            token_sha256: as in ``rendered.pod``.

        Raises:
            ReaderDownError: it does not run yet.
            ApiConflictError: it is just ending, or was just created.
            ClusterError: the API server does not answer, or refuses the pod.
        """
        namespace, secret = place
        name = rendered.name(secret)
        wanted = rendered.pod(namespace, secret, self._images, token_sha256=token_sha256)
        raw = self._cluster.get(POD, namespace, name)
        if raw is None:
            policy = rendered.policy(namespace, system=self._system)
            self._cluster.apply(NETWORK_POLICY, policy, manager=SPEC_MANAGER)
            self._cluster.create(POD, wanted, manager=SPEC_MANAGER)
            raise starting(place)
        pod = Pod.parse(raw)
        if self._is_outdated(raw, pod, wanted):
            self._cluster.delete(POD, namespace, name, uid=pod.uid)
            raise starting(place)
        address = raw.get("status", {}).get("podIP", "")
        if address and pod.live and (pod.ready or pod.deleting):
            return str(address)
        trouble = pod.trouble() or _last_end(pod)
        raise ReaderDownError(NOT_RUNNING, trouble) if trouble else starting(place)

    def refresh(self, place: Place, now: float) -> None:
        """Make the kubelet read the Secret again."""
        namespace, secret = place
        try:
            annotations = {rendered.SYNC_ANNOTATION: f"{now:.0f}"}
            self._cluster.annotate(POD, namespace, rendered.name(secret), annotations)
        except ClusterError as error:
            log.info("a reader could not be annotated: %s", error)

    def delete(self, place: Place) -> None:
        """Delete a reader's pod, if it exists and is the operator's."""
        self._delete(POD, place[0], rendered.name(place[1]))

    def delete_policy(self, namespace: str) -> None:
        """Delete the NetworkPolicy of a namespace without readers, if it is ours."""
        self._delete(NETWORK_POLICY, namespace, rendered.PREFIX)

    def existing(self, namespaces: tuple[str, ...]) -> list[Place]:
        """The readers whose pods exist in these namespaces; no namespaces: in all."""
        places = []
        for namespace, name in self._cluster.names(POD, namespaces, labels=rendered.selector()):
            raw = self._cluster.get(POD, namespace, name)
            secret = Meta.parse(raw).annotations.get(rendered.SECRET_ANNOTATION) if raw else None
            if secret and rendered.name(secret) == name:
                places.append((namespace, secret))
        return places

    def _is_outdated(self, raw: Manifest, pod: Pod, wanted: Manifest) -> bool:
        """Whether a pod has ended or differs from what is wanted.

        Raises:
            ReaderDownError: the pod is somebody else's.
        """
        meta = Meta.parse(raw)
        if not _is_ours(meta):
            message = f"A pod {pod.name} exists that is not the operator's."
            raise ReaderDownError(NOT_RUNNING, message)
        stamp = wanted["metadata"]["annotations"][APPLIED_ANNOTATION]
        is_same = meta.annotations.get(APPLIED_ANNOTATION) == stamp
        return not pod.deleting and not (pod.live and is_same)

    def _delete(self, kind: Kind, namespace: str, name: str) -> None:
        raw = self._cluster.get(kind, namespace, name)
        meta = Meta.parse(raw) if raw is not None else None
        if meta is not None and _is_ours(meta):
            self._cluster.delete(kind, namespace, name, uid=meta.uid)


def _is_ours(meta: Meta) -> bool:
    return meta.labels.get(COMPONENT_LABEL) == rendered.COMPONENT


def starting(place: Place) -> ReaderDownError:
    """What to say of a reader that has just been created, or is being replaced."""
    return ReaderDownError(STARTING, f"Pod {rendered.name(place[1])} is starting.")


def _last_end(pod: Pod) -> str:
    """Why the reader's process has ended last, while it starts again."""
    for container in pod.containers:
        if container.exit_code is not None:
            limit = f" (memory limit {rendered.MEMORY})" * (container.exit_reason == "OOMKilled")
            reason = container.exit_reason or f"exit code {container.exit_code}"
            return f"Pod {pod.name} has ended: {reason}{limit}. It starts again."
    return ""
