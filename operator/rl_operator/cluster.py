"""The API server: reads and writes of single objects. Every write is fenced by the Lease."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import urllib3
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from rl_contracts.errors import RLError
from rl_operator.kinds import Kind
from rl_operator.transport import Client, Transport, authenticated, parsed

Manifest = dict[str, Any]
Json = Mapping[str, Any]
Asked = Callable[[str, str, int], None]

PAGE = 500
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
REFUSED_STATUSES = {400, 403, 405, 415, 422}
TOO_MANY = 429
READING = {"get", "list", "try"}
UNWARNED = {"fieldValidation": "Ignore"}
"""Of every write: else the API server reads it a second time, an apply as YAML, for the sake of
warnings about unknown fields, which nobody sees. Users' wishes for pods are tried strictly before.
"""
TRIES = 5
HOOK_WORDS = "failed calling webhook"
"""The API server's, in a 500, for a webhook of failurePolicy Fail that does not answer."""
WAIT_SECONDS, MAX_WAIT_SECONDS = 0.2, 2.0
"""Between two tries: up to the first one, doubled each time."""

log = logging.getLogger(__name__)


class Written(Protocol):
    """Is told of the operator's own writes, before anybody else is."""

    def stored(self, kind: Kind, raw: Json, *, subresource: str) -> None:
        """An object is now as the API server has answered."""

    def ended(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """There is no such object any more."""


class ClusterError(RLError):
    """The API server did not do what was asked."""

    def __init__(
        self, *, doing: str, status: int, message: str, causes: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Say what was done, and what came of it.

        Args:
            doing: method and path.
            status: of the answer; 0 without one.
            message: the API server's words, or the connection's.
            causes: path and complaint of each field that is named.
        """
        super().__init__(f"{doing}: {message} ({status})" if status else f"{doing}: {message}")
        self.doing, self.status, self.message = doing, status, message
        self.causes = tuple(causes)


class ApiUnavailableError(ClusterError):
    """No answer, or one that asks to try again."""


class ApiHookError(ApiUnavailableError):
    """An admission webhook did not answer: the API server is well, and cannot say yes."""


class ApiConflictError(ClusterError):
    """The object has changed since it was read, or is there already."""

    @classmethod
    def of_missing(cls, gone: ApiMissingError) -> ApiConflictError:
        """Of an object that was there when it was read, where the API server answers by 404."""
        return cls(doing=gone.doing, status=gone.status, message=gone.message)


class ApiRefusedError(ClusterError):
    """Refused as invalid or not permitted; the same request would be refused again."""


class ApiMissingError(ClusterError):
    """The object, or its whole kind, is not there."""


class Cluster:
    """Reads and writes of single objects."""

    def __init__(
        self,
        api: Client,
        *,
        may_write: Callable[[], None],
        count: Callable[[str, str], None],
        asked: Asked = lambda verb, kind, status: None,
        dated: Callable[[str], None] = lambda date: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap a client.

        Args:
            api: an authenticated client.
            may_write: called before every write; raises where writing is not allowed any more.
            count: called after every write with its verb and kind.
            asked: called after every request with verb, kind and HTTP status, 0 without an answer.
            dated: called with every answer's ``Date``.
            sleep: waits so many seconds.
        """
        self._transport = Transport(api)
        self._written: Written | None = None
        self._may_write = may_write
        self._count = count
        self._asked = asked
        self._dated = dated
        self._tries = {one: _tries(reading=one, sleep=sleep) for one in (True, False)}

    def tells(self, written: Written) -> None:
        """Tell somebody of every write from now on."""
        self._written = written

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""
        try:
            return self._send("GET", kind.path(namespace, name), asking=("get", kind))
        except ApiMissingError:
            return None

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        """The objects of a namespace that a label selector matches.

        Raises:
            ApiMissingError: when the API server does not know the kind.
        """
        # Items of a list name neither; those of a single read do.
        stamp = {"apiVersion": kind.api_version, "kind": kind.name}
        pages = self._pages(kind, kind.path(namespace), {"labelSelector": labels})
        return [stamp | one for page in pages for one in page["items"]]

    def names(self, kind: Kind, namespaces: tuple[str, ...]) -> list[tuple[str, str]]:
        """Namespace and name of all objects of a kind; no namespaces: the whole cluster."""
        paths = [kind.path(one) for one in namespaces] or [kind.everywhere()]
        return [
            (one["metadata"]["namespace"], one["metadata"]["name"])
            for path in paths
            for page in self._pages(kind, path, {})
            for one in page["items"]
        ]

    def serves(self, kind: Kind, namespace: str) -> bool:
        """Whether the API server knows a kind."""
        try:
            self._send("GET", kind.path(namespace), {"limit": "1"}, asking=("list", kind))
        except ApiMissingError:
            return False
        return True

    def _pages(self, kind: Kind, path: str, query: Json) -> Iterator[Manifest]:
        token = ""
        while True:
            page = self._send(
                "GET",
                path,
                {**query, "limit": str(PAGE)} | ({"continue": token} if token else {}),
                asking=("list", kind),
            )
            yield page
            token = page["metadata"].get("continue", "")
            if not token:
                return

    def apply(
        self, kind: Kind, manifest: Manifest, *, manager: str, subresource: str = ""
    ) -> Manifest:
        """Server-side apply: the manager's fields become exactly those of the manifest.

        A ``metadata.resourceVersion`` in the manifest makes it conditional on that version.
        """
        query = {"fieldManager": manager, "force": "true"}
        return self._write("apply", kind, manifest, query=query, subresource=subresource)

    def create(self, kind: Kind, manifest: Manifest, *, manager: str = "") -> Manifest:
        """Create an object; raises ApiConflictError when the name is taken."""
        query = {"fieldManager": manager} if manager else {}
        return self._write("create", kind, manifest, query=query)

    def try_out(self, kind: Kind, manifest: Manifest) -> None:
        """Have an object checked as if it were created; nothing is stored.

        Raises:
            ApiRefusedError: it would be refused, or has fields that the API server does not know.
        """
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        path = kind.path(manifest["metadata"]["namespace"])
        self._send("POST", path, query, body=manifest, asking=("try", kind))

    def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Replace an object at the resourceVersion that the manifest names."""
        return self._write("replace", kind, manifest)

    def merge(self, kind: Kind, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Change the fields of the manifest and no others."""
        return self._write("merge", kind, manifest, subresource=subresource)

    def annotate(
        self, kind: Kind, namespace: str, name: str, annotations: Mapping[str, str | None]
    ) -> None:
        """Set annotations, or with None take them away; does nothing when the object is gone."""
        manifest = {
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations)}
        }
        try:
            self.merge(kind, manifest)
        except ApiMissingError:
            return

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Delete one object and, behind it, what it owns; does nothing when that one is gone."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            left = self._send(
                "DELETE", kind.path(namespace, name), body=body, asking=("delete", kind)
            )
        except (ApiMissingError, ApiConflictError):  # conflict: another object has the name now
            self._tell_end(kind, namespace, name, uid)
            return
        self._count("delete", kind.name)
        if left.get("kind") == kind.name:  # it has a grace, or a finalizer
            self._tell_stored(kind, left)
        else:
            self._tell_end(kind, namespace, name, uid)

    def _tell_stored(self, kind: Kind, raw: Manifest, *, subresource: str = "") -> None:
        if self._written is not None:
            self._written.stored(kind, raw, subresource=subresource)

    def _tell_end(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        if self._written is not None:
            self._written.ended(kind, namespace, name, uid=uid)

    def _write(
        self,
        verb: str,
        kind: Kind,
        manifest: Manifest,
        *,
        query: Json | None = None,
        subresource: str = "",
    ) -> Manifest:
        metadata = manifest["metadata"]
        named = kind.path(metadata["namespace"], metadata["name"], subresource)
        path = kind.path(metadata["namespace"]) if verb == "create" else named
        method, content = {
            "apply": ("PATCH", APPLY),
            "merge": ("PATCH", MERGE),
            "create": ("POST", "application/json"),
            "replace": ("PUT", "application/json"),
        }[verb]
        stored = self._send(
            method, path, {**UNWARNED, **(query or {})}, body=manifest, content=content,
            asking=(verb, kind), named=named,
        )  # fmt: skip
        self._count(verb, kind.name)
        self._tell_stored(kind, stored, subresource=subresource)
        return stored

    def _send(
        self,
        method: str,
        path: str,
        query: Json | None = None,
        *,
        asking: tuple[str, Kind],
        body: Json | None = None,
        content: str = "application/json",
        named: str = "",
    ) -> Manifest:
        """The answer; asked again where that changes nothing.

        Errors tell of ``named``, where the path, as that of a creation, names no object. One look
        makes many requests. On an API server that turns half of them away hardly any look would
        come through if each had but one try.
        """
        reading, doing = asking[0] in READING, f"{method} {named or path}"

        def once() -> Manifest:
            if not reading:
                self._may_write()
            return self._once(
                method, path, query, asking=asking, body=body, content=content, doing=doing
            )

        return self._tries[reading](once)

    def _once(
        self,
        method: str,
        path: str,
        query: Json | None,
        *,
        asking: tuple[str, Kind],
        body: Json | None,
        content: str,
        doing: str,
    ) -> Manifest:
        status = 0
        try:
            answer = self._transport.send(method, path, query, body=body, content=content)
            status = answer.status
            self._dated(answer.headers.get("Date", ""))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            cause = f"{type(error).__name__}: {error}"[:300]
            raise ApiUnavailableError(doing=doing, status=0, message=cause) from error
        finally:
            self._asked(asking[0], asking[1].name, status)
        if not 200 <= status < 300:
            raise _translated(answer, doing)
        found: Manifest = parsed(answer.data)
        return found


def _tries(*, reading: bool, sleep: Callable[[float], None]) -> Retrying:
    """Tries of requests that read, or of others; for any number of threads."""
    return Retrying(
        retry=retry_if_exception(lambda error: _may_go_again(error, reading=reading)),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=WAIT_SECONDS, max=MAX_WAIT_SECONDS),
        sleep=sleep,
        reraise=True,
    )


def _may_go_again(error: BaseException, *, reading: bool) -> bool:
    """What was turned away has not been begun; a write that failed otherwise may be done."""
    if not isinstance(error, ApiUnavailableError):
        return False
    return error.status == TOO_MANY or (reading and error.status >= 500)


def _translated(answer: urllib3.BaseHTTPResponse, doing: str) -> ClusterError:
    status = answer.status
    causes: list[tuple[str, str]] = []
    try:
        said = json.loads(answer.data)
        message = str(said["message"])
        named = (said.get("details") or {}).get("causes") or []
        causes = [(str(one.get("field", "")), str(one.get("message", ""))) for one in named]
    except (ValueError, KeyError, TypeError, AttributeError):
        message = str(answer.reason)
    kind: type[ClusterError] = ApiUnavailableError
    if status == 404:
        kind = ApiMissingError
    elif status == 409:
        kind = ApiConflictError
    elif status in REFUSED_STATUSES:
        kind = ApiRefusedError
    elif HOOK_WORDS in message:
        kind = ApiHookError
    return kind(doing=doing, status=status, message=message[:900], causes=causes)


def connect(
    *,
    may_write: Callable[[], None],
    count: Callable[[str, str], None],
    asked: Asked,
    dated: Callable[[str], None],
    connections: int,
) -> Cluster:
    """Connect as the pod's service account, outside of a cluster as the kubeconfig says."""
    return Cluster(
        authenticated(connections),
        may_write=may_write,
        count=count,
        asked=asked,
        dated=dated,
    )
