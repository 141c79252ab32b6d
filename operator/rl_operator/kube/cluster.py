"""Reads and writes objects at the API server. Every write is fenced by the Lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from rl_operator.kube.api_errors import ApiConflictError, ApiMissingError
from rl_operator.kube.api_requests import Json, Manifest, OnRequest, Requests
from rl_operator.kube.kinds import EVENT, Kind
from rl_operator.kube.transport import Client, authenticated

PAGE = 500
"""Objects in one answer to a list."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
UNWARNED = {"fieldValidation": "Ignore"}
"""Query of every write. Otherwise the API server parses the body twice, to warn about unknown
fields. A dry run validates users' pod templates strictly before.
"""
CONDITIONS = frozenset({"resourceVersion", "uid"})
"""Metadata that make a write conditional on the object as it was observed."""


class Written(Protocol):
    """Receives the operator's own writes before the watches report them."""

    def stored(self, kind: Kind, raw: Json, *, subresource: str) -> None:
        """The API server has stored an object."""

    def ended(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """An object no longer exists."""


class Cluster:
    """Reads and writes of single objects."""

    def __init__(
        self,
        api: Client,
        *,
        may_write: Callable[[], None],
        count: Callable[[str, str], None],
        on_request: OnRequest = lambda verb, kind, status: None,
        on_date: Callable[[str], None] = lambda date: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap a client.

        Args:
            api: an authenticated client.
            may_write: called before every write; raises when this process may no longer write.
            count: called after every write with its verb and kind.
            on_request: called after every attempt with verb, kind and HTTP status (0: no answer).
            on_date: called with every answer's ``Date``.
            sleep: waits so many seconds.
        """
        self._requests = Requests(
            api, may_write=may_write, on_request=on_request, on_date=on_date, sleep=sleep
        )
        self._written: Written | None = None
        self._count = count

    def report_writes_to(self, written: Written) -> None:
        """Report every write to a listener from now on."""
        self._written = written

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""
        try:
            return self._requests.send("GET", kind.path(namespace, name), asking=("get", kind))
        except ApiMissingError:
            return None

    def select(self, kind: Kind, namespace: str, *, labels: str) -> list[Manifest]:
        """The objects of a namespace that a label selector matches.

        Raises:
            ApiMissingError: when the API server does not know the kind.
        """
        # Items of a list have neither apiVersion nor kind; single objects have both.
        stamp = {"apiVersion": kind.api_version, "kind": kind.name}
        pages = self._pages(kind, kind.path(namespace), {"labelSelector": labels})
        return [stamp | item for page in pages for item in page["items"]]

    def labels(self, kind: Kind, *, selector: str) -> list[dict[str, str]]:
        """Labels of the objects of a kind in the whole cluster that a label selector matches."""
        pages = self._pages(kind, kind.everywhere(), {"labelSelector": selector})
        return [dict(item["metadata"]["labels"]) for page in pages for item in page["items"]]

    def warnings(self, namespace: str, uid: str = "") -> tuple[list[Manifest], bool]:
        """The Events of type Warning in a namespace, at most ``PAGE``, and whether these are all.

        Args:
            namespace: whose users may create Events, as many as they like.
            uid: of an object; empty: the Events about all objects.
        """
        selector = f"type=Warning,regarding.uid={uid}" if uid else "type=Warning"
        query = {"fieldSelector": selector, "limit": str(PAGE)}
        page = self._requests.send("GET", EVENT.path(namespace), query, asking=("list", EVENT))
        return list(page["items"]), not page["metadata"].get("continue")

    def names(
        self, kind: Kind, namespaces: tuple[str, ...], *, labels: str = ""
    ) -> list[tuple[str, str]]:
        """Namespace and name of all objects of a kind; no namespaces: the whole cluster."""
        paths = [kind.path(namespace) for namespace in namespaces] or [kind.everywhere()]
        return [
            (item["metadata"]["namespace"], item["metadata"]["name"])
            for path in paths
            for page in self._pages(kind, path, {"labelSelector": labels} if labels else {})
            for item in page["items"]
        ]

    def serves(self, kind: Kind, namespace: str) -> bool:
        """Whether the API server knows a kind."""
        try:
            self._requests.send("GET", kind.path(namespace), {"limit": "1"}, asking=("list", kind))
        except ApiMissingError:
            return False
        return True

    def _pages(self, kind: Kind, path: str, query: Json) -> Iterator[Manifest]:
        token = ""
        while True:
            page = self._requests.send(
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
        """Validate an object as if it were created (dry run); nothing is stored.

        Raises:
            ApiRefusedError: it would be refused, or has fields that the API server does not know.
        """
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        path = kind.path(manifest["metadata"]["namespace"])
        self._requests.send("POST", path, query, body=manifest, asking=("try", kind))

    def review(self, kind: Kind, spec: Json) -> Manifest:
        """The status of a review (of a token, of an access), which stores nothing."""
        body = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec}
        path = kind.everywhere()
        answer = self._requests.send("POST", path, body=body, asking=("review", kind))
        return dict(answer.get("status") or {})

    def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """Replace an object at the resourceVersion that the manifest names."""
        return self._write("replace", kind, manifest)

    def merge(self, kind: Kind, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Change exactly the fields of the manifest (JSON merge patch)."""
        return self._write("merge", kind, manifest, subresource=subresource)

    def annotate(
        self, kind: Kind, namespace: str, name: str, annotations: Mapping[str, str | None]
    ) -> None:
        """Set annotations, or remove them with None; does nothing when the object is gone."""
        manifest = {
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations)}
        }
        try:
            self.merge(kind, manifest)
        except ApiMissingError:
            return

    def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Delete an object and, in the background, its children; does nothing when it is gone."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            left = self._requests.send(
                "DELETE", kind.path(namespace, name), body=body, asking=("delete", kind)
            )
        except (ApiMissingError, ApiConflictError):  # conflict: another object has the name now
            self._tell_end(kind, namespace, name, uid)
            return
        self._count("delete", kind.name)
        if left.get("kind") == kind.name:  # it has a grace period, or a finalizer
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
        """Write an object, and report the write.

        Raises:
            ApiConflictError: the name is taken, or the object no longer has the version or uid that
                the manifest names.
        """
        metadata = manifest["metadata"]
        named = kind.path(metadata["namespace"], metadata["name"], subresource)
        path = kind.path(metadata["namespace"]) if verb == "create" else named
        method, content = {
            "apply": ("PATCH", APPLY),
            "merge": ("PATCH", MERGE),
            "create": ("POST", "application/json"),
            "replace": ("PUT", "application/json"),
        }[verb]
        try:
            stored = self._requests.send(
                method,
                path,
                {**UNWARNED, **(query or {})},
                body=manifest,
                content=content,
                asking=(verb, kind),
                named=named,
            )
        except ApiMissingError as gone:
            if CONDITIONS.isdisjoint(metadata):
                raise
            # The API server answers some writes to deleted objects by 409, others by 404.
            raise ApiConflictError.of_missing(gone) from gone
        self._count(verb, kind.name)
        self._tell_stored(kind, stored, subresource=subresource)
        return stored


def connect(
    *,
    may_write: Callable[[], None],
    count: Callable[[str, str], None],
    on_request: OnRequest,
    on_date: Callable[[str], None],
    connections: int,
) -> Cluster:
    """Connect as the pod's service account, or outside of a cluster by the kubeconfig."""
    return Cluster(
        authenticated(connections),
        may_write=may_write,
        count=count,
        on_request=on_request,
        on_date=on_date,
    )
