"""Kubernetes objects as the console reads them."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubernetes import client

from rl_console.cluster.api import REQUEST_SECONDS, Api
from rl_console.errors import NotFoundError, RequestRefusedError
from rl_console.jobs import JobObject, PoolObject, Workload
from rl_console.names import require_job, require_name
from rl_console.pods import PodView, pod_view
from rl_contracts.spec.resources import GROUP, VERSION

CHUNK = 16_384
LEAST_SECONDS = 5.0
"""Of a request: with less, an API server that is slow would seem to be down at the end."""
PAGE = 500
"""Objects of one page of a list."""


def path(plural: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Path of objects of our group; empty parts are left out.

    Args:
        plural: of the kind, e.g. ``rljobs``.
        namespace: empty: all.
        name: of one object.
        part: a subresource, e.g. ``scale``.

    Raises:
        UsageError: a name is none of Kubernetes.
    """
    for kind, given in (("namespace", namespace), ("RLJob or SamplerPool", name)):
        if given:
            require_name(kind, given)
    place = f"/namespaces/{quote(namespace)}" if namespace else ""
    parts = "".join(f"/{quote(each, safe='')}" for each in (name, part) if each)
    return f"/apis/{GROUP}/{VERSION}{place}/{plural}{parts}"


class Cluster:
    """The API of one cluster, reached by one kubeconfig context."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._core = client.CoreV1Api(api.library)
        self._apps = client.AppsV1Api(api.library)
        self._custom = client.CustomObjectsApi(api.library)
        self._call = api.call
        self._limit = api.limit
        self.default_namespace = api.namespace

    @classmethod
    def connect(
        cls,
        kubeconfig: Path | None,
        *,
        context: str | None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> Cluster:
        """Connect by a context of a kubeconfig; kubectl's defaults where none is named.

        Raises:
            UsageError: the kubeconfig or the context does not exist.
        """
        return cls(Api.connect(kubeconfig, context=context, request_seconds=request_seconds))

    def within(self, seconds: float) -> Cluster:
        """The same cluster for the end of a wait; a request may take LEAST_SECONDS in any case."""
        return Cluster(self.api.within(max(seconds, LEAST_SECONDS)))

    def options(self, namespace: str = "") -> str:
        """Options of a command in a message, so that it works on the same namespace and cluster.

        Empty without a namespace, where kubectl's default cluster is meant.
        """
        return shlex.join([*(["-n", namespace] if namespace else []), *self.api.options])

    def job(self, namespace: str, name: str) -> JobObject:
        """Read an RLJob; raises NotFoundError when it does not exist."""
        return JobObject.parse(self.raw_job(namespace, name))

    def raw_jobs(
        self, namespace: str, *, selector: str = "", phase: str = ""
    ) -> list[dict[str, Any]]:
        """RLJobs as the API server has them, by name; arguments as of ``each_raw_job``."""
        return list(self.each_raw_job(namespace, selector=selector, phase=phase))

    def each_raw_job(
        self, namespace: str, *, selector: str = "", phase: str = "", at_once: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """RLJobs as the API server has them, by name, as they arrive.

        Args:
            namespace: of the jobs; empty: all.
            selector: label selector; empty: all jobs.
            phase: only jobs whose status has it; empty: all jobs.
            at_once: jobs that are held at the same time.
        """
        fields = f"status.phase={phase}" if phase else ""
        query = {"limit": at_once, "labelSelector": selector, "fieldSelector": fields}
        doing = f"listing RLJobs of {namespace or 'all namespaces'}"
        for page in self.api.pages(path("rljobs", namespace), doing=doing, query=query):
            for item in page["items"]:
                yield {"apiVersion": f"{GROUP}/{VERSION}", "kind": "RLJob", **item}

    def raw_job(self, namespace: str, name: str) -> dict[str, Any]:
        """An RLJob as the API server has it.

        Raises:
            NotFoundError: it does not exist.
            UsageError: the name of the job or of the namespace is empty, or none of Kubernetes.
        """
        require_job(namespace, name)
        doing = f"reading RLJob {namespace}/{name}"
        try:
            raw: dict[str, Any] = self.api.request(
                "GET", path("rljobs", namespace, name), doing=doing
            )
        except NotFoundError as error:
            if error.remedy:
                raise
            remedy = (
                f"`kubectl rl list {self.options(namespace)}` shows the jobs of the namespace; -n "
                "chooses another one"
            )
            raise NotFoundError(doing=doing, remedy=remedy) from error
        return raw

    def pools(self, namespace: str, job: str) -> list[PoolObject]:
        """The SamplerPools that serve a job, by name."""
        raw = self._call(
            f"listing SamplerPools of {namespace}",
            lambda: self._custom.list_namespaced_custom_object(
                GROUP, VERSION, namespace, "samplerpools", _request_timeout=self._limit
            ),
        )
        pools = map(PoolObject.parse, raw["items"])
        return sorted(
            (pool for pool in pools if job in (pool.job, *pool.beside)), key=lambda pool: pool.name
        )

    def pods(self, namespace: str, selector: str = "") -> list[PodView]:
        """Pods of a namespace sorted by name; an empty namespace means all namespaces."""
        wanted = {"label_selector": selector, "_request_timeout": self._limit}
        listed = self._call(
            f"listing pods of {namespace or 'all namespaces'}",
            lambda: (
                self._core.list_namespaced_pod(namespace, **wanted)
                if namespace
                else self._core.list_pod_for_all_namespaces(**wanted)
            ),
        )
        return sorted((pod_view(item) for item in listed.items), key=lambda pod: pod.name)

    def pods_of(self, namespace: str, job: str) -> list[PodView]:
        """Pods that work for a job, those of shared pools included, sorted by name."""
        return [pod for pod in self.pods(namespace) if job in (pod.job, *pod.beside)]

    def log_chunks(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since_seconds: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """A container's log in chunks, with ``follow`` until the container ends.

        While it is followed there is no time limit between two chunks: a container may be silent.
        """
        connecting, silent = self._limit
        options = {"tail_lines": tail, "since_seconds": since_seconds}
        doing = f"reading the log of {namespace}/{pod} {container}"
        answer = self._call(
            doing,
            lambda: self._core.read_namespaced_pod_log(
                pod,
                namespace,
                container=container,
                follow=follow,
                previous=previous,
                timestamps=timestamps,
                _preload_content=False,
                _request_timeout=(connecting, None if follow else silent),
                **{key: value for key, value in options.items() if value is not None},
            ),
        )
        chunks = answer.stream(CHUNK)
        try:
            while chunk := self._call(doing, lambda: next(chunks, b"")):
                yield chunk
        finally:
            answer.release_conn()

    def log_tail(self, pod: PodView, container: str, *, lines: int, previous: bool) -> list[str]:
        """Last lines of a container's log; empty when the container never started or is gone."""
        try:
            text: str = self._call(
                f"reading the log of {pod.namespace}/{pod.name}",
                lambda: self._core.read_namespaced_pod_log(
                    pod.name,
                    pod.namespace,
                    container=container,
                    tail_lines=lines,
                    previous=previous,
                    _request_timeout=self._limit,
                ),
            )
        except (NotFoundError, RequestRefusedError):
            return []
        return text.splitlines()

    def secret(self, namespace: str, name: str) -> dict[str, str]:
        """Decoded values of a Secret; raises NotFoundError when it does not exist."""
        raw = self._call(
            f"reading Secret {namespace}/{name}",
            lambda: self._core.read_namespaced_secret(
                name, namespace, _request_timeout=self._limit
            ),
        )
        return {key: base64.b64decode(value).decode() for key, value in (raw.data or {}).items()}

    def workloads(self, namespace: str) -> list[Workload]:
        """Deployments and StatefulSets of a namespace."""
        timeout = self._limit
        deployments = self._call(
            f"listing Deployments of {namespace}",
            lambda: self._apps.list_namespaced_deployment(namespace, _request_timeout=timeout),
        )
        sets = self._call(
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
