"""The protocol between the operator and a reader: JSON over HTTP/1.0, one request per connection.

A reader is a pod of the tenant's namespace that mounts its Secret of stores. Both sides bound what
they take: a tenant can write documents of any size, and can put a server of its own behind the
reader's name. Documents travel as JSON text inside a string, so that the operator can keep and
count them without parsing them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from rl_contracts.errors import Refusal

PORT = 8090
TOKEN_HASH = "RL_READER_TOKEN_SHA256"
"""Environment variable of a reader: SHA-256 of the token that requests must carry, in hex."""
HEALTH, RUNS, CHECK, DELETE = "/healthz", "/v1/runs", "/v1/check", "/v1/delete"
QUERY = "/v1/query"
IN_CLEAR = "InClear"
"""Reason of a store that answers and is reached without TLS outside of the cluster."""
REQUEST_BYTES = 4 << 20
ANSWER_BYTES = 8 << 20
"""Longest answer of a reader. Runs that do not fit are left out and asked for again."""


class Message(BaseModel):
    """A frozen message; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RefusalText(Message):
    """A ``Refusal`` on its way."""

    field: str
    value: str
    reason: str
    message: str
    remedy: str

    @classmethod
    def of(cls, refusal: Refusal) -> Self:
        """The message for a refusal."""
        return cls(
            field=refusal.field,
            value=refusal.value,
            reason=refusal.reason,
            message=refusal.message,
            remedy=refusal.remedy,
        )

    def refusal(self) -> Refusal:
        """The refusal, each text shortened: a reader may be somebody else's."""
        return Refusal(
            field=self.field[:300],
            value=self.value[:200],
            reason=self.reason[:100],
            message=self.message[:1000],
            remedy=self.remedy[:500],
        )


class StoreState(Message):
    """Whether a store could be used; texts may still hold what a server has written."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    cause: str = ""
    remedy: str = ""


class RunsRequest(Message):
    """Reads runs."""

    runs: tuple[str, ...]
    count: tuple[str, ...] = ()
    """Runs whose open tasks are counted, which takes two more queries each."""


class RunDocuments(Message):
    """One run."""

    digest: str
    """Equal as long as nothing has changed but heartbeats and what moves with them."""
    starting: bool
    """No trainer has taken the run yet."""
    documents: str
    """JSON: ``{"run": {…} or null, "samplers": [{…}, …]}`` in the form of ``Document.to_mongo``."""
    backlog: int | None = None
    """Open tasks; None: not counted."""
    problem: str = ""
    """Why the documents are left out, e.g. their size; then ``documents`` is empty."""


class RunsAnswer(Message):
    """What the stores hold of runs."""

    version: str
    """Changes with the content of the Secret, and with the reader's process."""
    refusal: RefusalText | None = None
    """The Secret cannot be used; everything else is empty."""
    bucket_name: str = ""
    store: StoreState = StoreState(status="Unknown", reason="NotChecked")
    bucket: StoreState = StoreState(status="Unknown", reason="NotChecked")
    now: float = 0.0
    """The store's clock in seconds since 1970."""
    runs: dict[str, RunDocuments] = {}


class CheckRequest(Message):
    """Checks the inputs of a job; asked again until the answer is done."""

    spec: dict[str, Any]
    begun: bool = False
    """A trainer has been started, so that ``data`` cannot be edited any more."""


class CheckAnswer(Message):
    """Result of a check."""

    version: str
    done: bool
    refusals: tuple[RefusalText, ...] = ()
    model: dict[str, Any] = {}
    """``capacity.shape.kept_fields`` of the model's ``config.json``; empty where it is not known,
    e.g. of a model of the hub."""
    others: dict[str, dict[str, Any]] = {}
    """The same of each model of ``spec.algorithm.other_models``, by the same fields."""


class DeleteRequest(Message):
    """Deletes the data of a run; asked again until the answer is done."""

    run: str


class DeleteAnswer(Message):
    """How far a deletion has come."""

    done: bool
    problem: str = ""
    """Why it does not go on; empty while it does."""


class QueryRequest(Message):
    """A viewer's question about a run, after the operator has checked the viewer's rights."""

    run: str
    tokenizer: str = ""
    """``s3://`` URI of the folder of the run's ``tokenizer.json``; empty: unknown."""
    query: dict[str, Any]
    """One of ``queries.kinds.Query``."""


class QueryAnswer(Message):
    """The answer to a viewer's question."""

    content: str = ""
    """JSON of the query's answer; empty with a problem."""
    problem: str = ""
    """Why there is no answer, and what to do."""
    valid: bool = True
    """False: the query itself cannot be answered, whatever the stores hold."""


def token(key: bytes, namespace: str, pod: str) -> str:
    """The token of one reader, in hex: nobody without the key can compute that of another."""
    return hmac.new(key, f"{namespace}/{pod}".encode(), hashlib.sha256).hexdigest()


def token_hash(token: str) -> str:
    """What a reader's pod may show of its token."""
    return hashlib.sha256(token.encode()).hexdigest()
