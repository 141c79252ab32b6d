"""Data of runs for viewers, each checked by the viewer's own rights.

A viewer shows a token of the cluster. The API server says whose it is (TokenReview) and whether
that user may ``get`` the RLJob (SubjectAccessReview); only then is the namespace's reader asked.
The token goes to the API server and nowhere else: a tenant can put a server of its own behind a
reader's name.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_contracts.reader import QUERY, QueryAnswer, QueryRequest
from rl_operator.kube.api_errors import ClusterError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import ACCESS_REVIEW, RLJOB, TOKEN_REVIEW
from rl_operator.stores.reader_pods import STARTING, ReaderDownError
from rl_operator.stores.readers import Readers

STORES_SECRET = "rl-operator-stores"
TRUST_SECONDS = 10.0
"""How long a permission is remembered: rights that are taken away end after this time."""
MOST_REMEMBERED = 10_000
PER_NAMESPACE = 3
"""Questions about one namespace at the same time: slow stores keep only their own viewers waiting.
"""
LONGEST_TOKEN = 16 << 10

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]


class ViewerRequest(BaseModel):
    """What a viewer sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Name
    job: Name
    query: dict[str, Any]


class _Problem(Exception):  # noqa: N818 - an answer, not an error
    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status, self.problem = status, problem


class RunData:
    """Answers viewers. For any thread."""

    def __init__(self, cluster: Cluster, readers: Readers, *, clock: Callable[[], float]) -> None:
        """Remember no permission yet.

        Args:
            cluster: asks the API server.
            readers: one for each Secret of stores.
            clock: monotonic seconds.
        """
        self._cluster, self._readers, self._clock = cluster, readers, clock
        self._allowed: dict[tuple[str, str, str], float] = {}
        self._busy: dict[str, int] = {}
        self._lock = threading.Lock()

    def answer(self, token: str, body: bytes) -> tuple[int, bytes]:
        """HTTP status and JSON for a viewer's request."""
        try:
            request = ViewerRequest.model_validate_json(body)
            self._check(token, request.namespace, request.job)
            with self._place(request.namespace):
                return 200, self._ask(request).encode()
        except ValidationError as error:
            return _problem_answer(
                400, f"The request is not valid: {error.error_count()} problems."
            )
        except _Problem as problem:
            return _problem_answer(problem.status, problem.problem)
        except ClusterError as error:
            return _problem_answer(503, f"The API server did not answer: {error.message}"[:300])

    def _check(self, token: str, namespace: str, job: str) -> None:
        """Raise a problem unless the token's user may read the job."""
        if not token or len(token) > LONGEST_TOKEN:
            raise _Problem(401, "Show a token of this cluster.")
        key = hashlib.sha256(token.encode()).hexdigest(), namespace, job
        with self._lock:
            until = self._allowed.get(key, 0.0)
        if self._clock() < until:
            return
        user = self._user(token)
        attributes = {
            "group": RLJOB.group,
            "resource": RLJOB.plural,
            "verb": "get",
            "namespace": namespace,
            "name": job,
        }
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "resourceAttributes": attributes,
        }
        if self._cluster.review(ACCESS_REVIEW, spec).get("allowed") is not True:
            raise _Problem(
                403,
                f"{user.get('username', 'The user')} may not get RLJob {job} in namespace "
                f"{namespace}. Ask its administrator for the right `get` on rljobs.rl-operator.io.",
            )
        with self._lock:
            if len(self._allowed) >= MOST_REMEMBERED:
                self._allowed.clear()
            self._allowed[key] = self._clock() + TRUST_SECONDS

    def _user(self, token: str) -> Mapping[str, Any]:
        status = self._cluster.review(TOKEN_REVIEW, {"token": token})
        if status.get("authenticated") is not True:
            raise _Problem(401, "The cluster does not know this token. Log in again.")
        user: Mapping[str, Any] = status.get("user") or {}
        return user

    @contextmanager
    def _place(self, namespace: str) -> Iterator[None]:
        with self._lock:
            if self._busy.get(namespace, 0) >= PER_NAMESPACE:
                raise _Problem(503, f"The stores of {namespace} are busy. Ask again.")
            self._busy[namespace] = self._busy.get(namespace, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._busy[namespace] -= 1
                if not self._busy[namespace]:
                    del self._busy[namespace]

    def _ask(self, request: ViewerRequest) -> str:
        job = self._cluster.get(RLJOB, request.namespace, request.job)
        if job is None:
            raise _Problem(404, f"RLJob {request.namespace}/{request.job} does not exist.")
        secret, question = _question(job, request.query)
        try:
            answer = self._readers.ask((request.namespace, secret), QUERY, question, QueryAnswer)
        except ReaderDownError as error:
            hint = " Ask again in a moment." if error.reason == STARTING else ""
            raise _Problem(503, f"{error}{hint}"[:500]) from error
        if answer.problem:
            raise _Problem(502 if answer.valid else 400, answer.problem[:500])
        return answer.content


def _question(job: Manifest, query: dict[str, Any]) -> tuple[str, QueryRequest]:
    """The Secret of a job's stores, and what its reader is asked."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    secret = (spec.get("storage") or {}).get("secretName") or STORES_SECRET
    model = spec.get("model") or {}
    run = status.get("runId") or job["metadata"]["uid"]
    tokenizer = str(model.get("tokenizerUri") or model.get("uri") or "")
    return secret, QueryRequest(run=run, tokenizer=tokenizer, query=query)


def _problem_answer(status: int, problem: str) -> tuple[int, bytes]:
    return status, json.dumps({"problem": problem, "message": problem}).encode()
