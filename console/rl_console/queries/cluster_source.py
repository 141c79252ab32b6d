"""Runs of a cluster, with the rights of the kubeconfig's user.

Data of runs come from the operator, which checks the user's token. A user with a client
certificate has no token, and the token of one who impersonates another has other rights: then the
stores are read directly, which takes the right to read their Secret.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
from collections.abc import Iterator
from typing import Any

import urllib3

from rl_console import stores as store_access
from rl_console import times
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster, path
from rl_console.errors import (
    ClusterUnavailableError,
    ConsoleError,
    NotAllowedError,
    NotFoundError,
    RequestRefusedError,
)
from rl_console.jobs import stores_secret
from rl_console.names import require_job
from rl_console.tools import OPERATOR_NAMESPACE, Tools
from rl_contracts.errors import RLError
from rl_contracts.queries.answering import Answering
from rl_contracts.queries.answers import Answer, parse_answer
from rl_contracts.queries.kinds import QUERY, Message
from rl_contracts.stores.connect import Stores

SERVICE = "rl-operator:data"
PROXY = "services/proxy"
"""The resource of the right that the way to the operator takes."""
TOKEN_HEADER = "X-RL-Token"
STARTING_SECONDS = 30.0
"""A reader takes some seconds to start."""
PAGE_SECONDS = 4.0
"""How long a page in a browser asks again. Many pages of many viewers share one process."""
RETRY_SECONDS = 0.5
ANSWER_SECONDS = 10.0
"""How long one question may take at least: longer than the operator waits for a reader (8 s), which
then says why there is no answer."""
BAD_GATEWAY = 502
"""The operator's status where a reader runs and has no answer, e.g. because its stores are down."""
JOBS_AT_ONCE = 100
"""Of a list, whose memory a page needs: several lists are made at the same time."""
MOST_EVENTS = 200


class ClusterSource:
    """What a user may see of a cluster. For any thread."""

    def __init__(
        self,
        cluster: Cluster,
        tools: Tools,
        *,
        operator_namespace: str = OPERATOR_NAMESPACE,
        patience_seconds: float = STARTING_SECONDS,
    ) -> None:
        """Ask nothing yet.

        Args:
            cluster: by the user's kubeconfig.
            tools: forwards ports where stores are read directly.
            operator_namespace: of the operator.
            patience_seconds: how long the operator is asked again while nobody answers. The last
                question may take ``ANSWER_SECONDS`` more.
        """
        self._patience_seconds = patience_seconds
        self._cluster, self._tools, self._operator = cluster, tools, operator_namespace
        self._answering = Answering()
        self._opened: dict[tuple[str, str], Stores] = {}
        self._running = contextlib.ExitStack()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close connections and forwarded ports."""
        self._running.close()

    def jobs(self, namespace: str) -> Iterator[dict[str, Any]]:
        """RLJobs by name, as they arrive; an empty namespace: of all."""
        return self._cluster.each_raw_job(namespace, at_once=JOBS_AT_ONCE)

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        """One RLJob; raises NotFoundError."""
        return self._cluster.raw_job(namespace, name)

    def pools(self, namespace: str) -> list[dict[str, Any]]:
        """SamplerPools of a namespace."""
        doing = f"listing SamplerPools of {namespace}"
        pages = self._cluster.api.pages(
            path("samplerpools", namespace), doing=doing, query={"limit": 500}
        )
        return [item for page in pages for item in page["items"]]

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """The newest events about an RLJob; empty where the viewer may not list them.

        The API server lists them by name, so the newest may be on the last page.
        """
        fields = f"regarding.kind=RLJob,regarding.name={name}"
        pages = self._cluster.api.pages(
            f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
            doing=f"listing events of {namespace}/{name}",
            query={"fieldSelector": fields, "limit": MOST_EVENTS},
        )
        events = (event for page in pages for event in page.get("items") or [])
        try:
            return heapq.nlargest(MOST_EVENTS, events, key=times.of_event)
        except NotAllowedError:
            return []

    def ask(self, namespace: str, job: str, query: Message, *, patient: bool = True) -> Answer:
        """The answer to a query, from the operator or directly."""
        require_job(namespace, job)
        token = self._cluster.api.token
        if not token:
            return self._ask_stores(namespace, job, query)
        ends = time.monotonic() + self._patience_seconds
        while True:
            api = self._cluster.api.within(max(ends - time.monotonic(), ANSWER_SECONDS))
            try:
                return self._ask_operator(api, namespace, job, query, token)
            except ClusterUnavailableError:
                if not patient or ends - time.monotonic() < RETRY_SECONDS:
                    raise
                time.sleep(RETRY_SECONDS)

    def _ask_operator(
        self, api: Api, namespace: str, job: str, query: Message, token: str
    ) -> Answer:
        asked = query.model_dump(mode="json")
        service = f"/api/v1/namespaces/{self._operator}/services/{SERVICE}"
        doing = f"asking the operator for data of {namespace}/{job}"
        try:
            given = api.request(
                "POST",
                f"{service}/proxy/v1/run-data",
                doing=doing,
                body={"namespace": namespace, "job": job, "query": asked},
                headers={TOKEN_HEADER: token},
            )
        except ClusterUnavailableError as error:
            if isinstance(error.__cause__, urllib3.exceptions.ReadTimeoutError):
                raise ClusterUnavailableError(
                    doing=doing,
                    cause=error.cause,
                    remedy="`kubectl rl doctor` checks both",
                    who="the operator, or the stores behind it,",
                ) from error
            if error.status != BAD_GATEWAY:
                raise
            # Asked again, stores that hang would end the reader.
            raise RequestRefusedError(doing=doing, cause=error.cause) from error
        except NotAllowedError as error:
            if PROXY not in error.cause:  # the operator's own answer is about the job
                raise
            remedy = (
                f"If the operator is in another namespace than {self._operator}, name it with "
                "--operator-namespace; else ask its administrator to add a group of yours to "
                "runData.viewers of its chart"
            )
            raise NotAllowedError(doing=doing, cause=error.cause, remedy=remedy) from error
        except NotFoundError as error:
            if error.remedy:
                raise
            remedy = f"No operator is in namespace {self._operator}: name it with"
            raise NotFoundError(doing=doing, remedy=f"{remedy} --operator-namespace") from error
        return parse_answer(asked["kind"], given)

    def _ask_stores(self, namespace: str, job: str, query: Message) -> Answer:
        raw = self._cluster.raw_job(namespace, job)
        spec = raw.get("spec") or {}
        model = spec.get("model") or {}
        run = (raw.get("status") or {}).get("runId") or raw["metadata"]["uid"]
        try:
            return self._answering.answer(
                self._stores(namespace, stores_secret(spec)),
                QUERY.validate_python(query.model_dump()),
                run=run,
                namespace=namespace,
                tokenizer=str(model.get("tokenizerUri") or model.get("uri") or ""),
            )
        except ConsoleError:
            raise
        except RLError as error:
            raise RequestRefusedError(
                doing=f"reading {namespace}/{job}", cause=str(error)
            ) from error

    def _stores(self, namespace: str, secret: str) -> Stores:
        with self._lock:
            key = namespace, secret
            if key not in self._opened:
                try:
                    opened = store_access.stores(self._cluster, self._tools, namespace, secret)
                    self._opened[key] = self._running.enter_context(opened)
                except NotFoundError as error:
                    raise NotFoundError(
                        doing=f"reading Secret {namespace}/{secret}",
                        remedy="Without a token in the kubeconfig, or with `as`, data of runs need "
                        "this Secret",
                    ) from error
            return self._opened[key]
