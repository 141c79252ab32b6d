"""Kubernetes API calls of the console; no other module uses the client library."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client, config

from rl_console.errors import ClusterUnavailableError, NotFoundError, RequestRefusedError
from rl_console.jobs import JobObject, PoolObject, Workload
from rl_console.pods import PodView, pod_view
from rl_contracts.spec.resources import GROUP, VERSION
from rl_contracts.spec.status import RLJobStatus

T = TypeVar("T")
REQUEST_SECONDS = 20
NOT_FOUND = 404
SERVER_ERRORS = range(500, 600)
TOO_MANY_REQUESTS = 429


class Cluster:
    """The API of one cluster, reached by one kubeconfig context."""

    def __init__(self, api: Any, *, default_namespace: str) -> None:
        self._core = client.CoreV1Api(api)
        self._apps = client.AppsV1Api(api)
        self._custom = client.CustomObjectsApi(api)
        self.default_namespace = default_namespace

    @classmethod
    def connect(cls, kubeconfig: Path | None, *, context: str | None) -> Cluster:
        """Connect by a context of a kubeconfig; kubectl's defaults where none is named.

        Raises:
            RequestRefusedError: the kubeconfig or the context does not exist.
        """
        file = str(kubeconfig) if kubeconfig else None
        try:
            contexts, active = config.list_kube_config_contexts(config_file=file)
            api = config.new_client_from_config(config_file=file, context=context)
        except config.ConfigException as error:
            raise RequestRefusedError(doing="reading the kubeconfig", cause=str(error)) from error
        wanted = next((entry for entry in contexts if entry["name"] == context), active)
        return cls(api, default_namespace=wanted["context"].get("namespace", "default"))

    def job(self, namespace: str, name: str) -> JobObject:
        """Read an RLJob; raises NotFoundError when it does not exist."""
        raw = _call(
            f"reading RLJob {namespace}/{name}",
            lambda: self._custom.get_namespaced_custom_object(
                GROUP, VERSION, namespace, "rljobs", name, _request_timeout=REQUEST_SECONDS
            ),
        )
        metadata = raw["metadata"]
        return JobObject(
            name=name,
            namespace=namespace,
            uid=metadata["uid"],
            generation=metadata["generation"],
            status=RLJobStatus.model_validate(raw.get("status", {})),
        )

    def pools(self, namespace: str, job: str) -> list[PoolObject]:
        """The SamplerPools that serve a job, by name."""
        raw = _call(
            f"listing SamplerPools of {namespace}",
            lambda: self._custom.list_namespaced_custom_object(
                GROUP, VERSION, namespace, "samplerpools", _request_timeout=REQUEST_SECONDS
            ),
        )
        pools = map(PoolObject.parse, raw["items"])
        return sorted(
            (pool for pool in pools if job in (pool.job, *pool.beside)), key=lambda pool: pool.name
        )

    def pods(self, namespace: str, selector: str = "") -> list[PodView]:
        """Pods of a namespace sorted by name; an empty namespace means all namespaces."""
        wanted = {"label_selector": selector, "_request_timeout": REQUEST_SECONDS}
        listed = _call(
            f"listing pods of {namespace or 'all namespaces'}",
            lambda: (
                self._core.list_namespaced_pod(namespace, **wanted)
                if namespace
                else self._core.list_pod_for_all_namespaces(**wanted)
            ),
        )
        return sorted((pod_view(item) for item in listed.items), key=lambda pod: pod.name)

    def log_tail(self, pod: PodView, container: str, *, lines: int, previous: bool) -> list[str]:
        """Last lines of a container's log; empty when the container never started or is gone."""
        try:
            text: str = _call(
                f"reading the log of {pod.namespace}/{pod.name}",
                lambda: self._core.read_namespaced_pod_log(
                    pod.name,
                    pod.namespace,
                    container=container,
                    tail_lines=lines,
                    previous=previous,
                    _request_timeout=REQUEST_SECONDS,
                ),
            )
        except (NotFoundError, RequestRefusedError):
            return []
        return text.splitlines()

    def secret(self, namespace: str, name: str) -> dict[str, str]:
        """Decoded values of a Secret; raises NotFoundError when it does not exist."""
        raw = _call(
            f"reading Secret {namespace}/{name}",
            lambda: self._core.read_namespaced_secret(
                name, namespace, _request_timeout=REQUEST_SECONDS
            ),
        )
        return {key: base64.b64decode(value).decode() for key, value in (raw.data or {}).items()}

    def workloads(self, namespace: str) -> list[Workload]:
        """Deployments and StatefulSets of a namespace."""
        timeout = REQUEST_SECONDS
        deployments = _call(
            f"listing Deployments of {namespace}",
            lambda: self._apps.list_namespaced_deployment(namespace, _request_timeout=timeout),
        )
        sets = _call(
            f"listing StatefulSets of {namespace}",
            lambda: self._apps.list_namespaced_stateful_set(namespace, _request_timeout=timeout),
        )
        return [
            *(_workload("Deployment", item) for item in deployments.items),
            *(_workload("StatefulSet", item) for item in sets.items),
        ]


def _workload(kind: str, workload: Any) -> Workload:
    desired = workload.spec.replicas
    seen = (workload.status.observed_generation or 0) >= workload.metadata.generation
    return Workload(
        kind=kind,
        name=workload.metadata.name,
        desired=desired,
        ready=workload.status.ready_replicas or 0,
        current=seen and (workload.status.updated_replicas or 0) >= desired,
    )


def _call(doing: str, request: Callable[[], T]) -> T:
    try:
        return request()
    except client.ApiException as error:
        if error.status == NOT_FOUND:
            raise NotFoundError(doing=doing) from error
        cause = f"{error.status} {error.reason}"
        if error.status in SERVER_ERRORS or error.status == TOO_MANY_REQUESTS:
            raise ClusterUnavailableError(doing=doing, cause=cause) from error
        raise RequestRefusedError(doing=doing, cause=cause) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ClusterUnavailableError(doing=doing, cause=str(error)[:200]) from error
