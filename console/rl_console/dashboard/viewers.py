"""Who looks at a dashboard that many share: each by a token of the cluster, with its own rights.

The dashboard has no rights of its own. Whatever a viewer asks for is asked of the API server with
the viewer's token, so RBAC decides about each request.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import NotLoggedInError
from rl_console.queries.cluster_source import PAGE_SECONDS, ClusterSource
from rl_console.tools import Tools

MOST_REMEMBERED = 256
"""Viewers whose connections are kept."""
MOST_TOKEN = 3800
"""Characters of a token that fits a cookie, which browsers limit to 4,096 with its name."""
TOKEN = re.compile(r"[\x21-\x7e]+")
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """A user of the cluster."""

    name: str
    """As the API server knows the user."""
    source: ClusterSource


class Viewers:
    """Viewers by their token. For any thread."""

    def __init__(self, server: str, *, authorities: Path, operator_namespace: str) -> None:
        """Know nobody.

        Args:
            server: URL of the API server.
            authorities: file of the certificates that the server's is checked by.
            operator_namespace: of the operator, which answers for data of runs.
        """
        self._server, self._authorities = server, authorities
        self._operator_namespace = operator_namespace
        self._known: OrderedDict[str, Viewer] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, token: str) -> Viewer:
        """The owner of a token, whom the API server names (SelfSubjectReview) the first time.

        Raises:
            NotLoggedInError: it is no token, or the API server does not know it.
            ClusterUnavailableError: the API server does not answer.
        """
        if not TOKEN.fullmatch(token):
            raise NotLoggedInError(doing="logging in", cause="this is no token")
        digest = _digest(token)
        with self._lock:
            if digest in self._known:
                self._known.move_to_end(digest)
                return self._known[digest]
        viewer = self._reviewed(token)
        self.remember(token, viewer)
        return viewer

    def remember(self, token: str, viewer: Viewer) -> None:
        """Keep the owner of a token, and forget those who came least recently."""
        with self._lock:
            self._known[_digest(token)] = viewer
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)

    def forget(self, token: str) -> None:
        """Ask the API server again when this token is shown next."""
        with self._lock:
            self._known.pop(_digest(token), None)

    def _reviewed(self, token: str) -> Viewer:
        api = Api.of_token(self._server, token, authorities=self._authorities)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        given = api.request("POST", WHO, doing="asking whose token this is", body=body)
        name = str(((given.get("status") or {}).get("userInfo") or {}).get("username") or "")
        source = ClusterSource(
            Cluster(api),
            Tools(),
            operator_namespace=self._operator_namespace,
            patience_seconds=PAGE_SECONDS,
        )
        return Viewer(name=name, source=source)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
