"""Requests to one API server, each with a time limit; errors as the console's own.

The modules of this folder alone use the client library.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client, config

from rl_console.cluster import kubeconfig as kubeconfig_file
from rl_console.cluster.failures import cause_of, refusal, was_sent
from rl_console.errors import ClusterUnavailableError, UsageError
from rl_console.tools import cluster_options

T = TypeVar("T")
REQUEST_SECONDS = 20.0
ALREADY_EXISTS = "AlreadyExists"
"""Reason of a refusal."""
MERGE_PATCH = "application/merge-patch+json"
SERVER_SIDE_APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
POD_TOKEN = Path(config.incluster_config.SERVICE_TOKEN_FILENAME)
POD_NAMESPACE = POD_TOKEN.with_name("namespace")


class Api:
    """An API server, reached by one context of a kubeconfig."""

    def __init__(
        self,
        library: Any,
        *,
        namespace: str = "default",
        request_seconds: float = REQUEST_SECONDS,
        impersonates: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self.library = library
        self.namespace = namespace
        """The context's."""
        self.limit = request_seconds, request_seconds
        """Seconds to connect, and between two parts of an answer. The library ignores a float."""
        self._impersonates = impersonates
        self.options = tuple(options)
        """Of kubectl, that choose this server; empty: kubectl's default."""

    @classmethod
    def connect(
        cls, kubeconfig: Path | None, *, context: str | None, request_seconds: float
    ) -> Api:
        """Read a kubeconfig, without a request.

        Within a pod, where neither a kubeconfig nor a context is named and kubectl's default files
        do not exist or are empty, the pod's service account is used, as kubectl does.

        Raises:
            UsageError: the kubeconfig or the context does not exist, or cannot be used.
            NotLoggedInError: the user's credential plugin gave no credential.
        """
        if kubeconfig is None and context is None and _is_pod_without_kubeconfig():
            return cls._of_pod(request_seconds=request_seconds)
        chosen = kubeconfig_file.read(kubeconfig, context=context)
        return cls(
            chosen.library,
            namespace=chosen.namespace,
            request_seconds=request_seconds,
            impersonates=chosen.impersonates,
            options=cluster_options(kubeconfig, context),
        )

    @classmethod
    def _of_pod(cls, *, request_seconds: float) -> Api:
        settings = kubeconfig_file.without_retries()
        config.load_incluster_config(client_configuration=settings)
        kubeconfig_file.use_proxy(settings)
        namespace = POD_NAMESPACE.read_text().strip() if POD_NAMESPACE.exists() else "default"
        return cls(client.ApiClient(settings), namespace=namespace, request_seconds=request_seconds)

    @classmethod
    def of_token(
        cls, server: str, token: str, *, authorities: Path, request_seconds: float = REQUEST_SECONDS
    ) -> Api:
        """The API server for the owner of a bearer token, without a request.

        Args:
            server: its URL.
            token: visible ASCII characters.
            authorities: file of the certificates that the server's is checked by.
            request_seconds: to connect, and between two parts of an answer.
        """
        settings = kubeconfig_file.without_retries()
        settings.host = server
        kubeconfig_file.use_proxy(settings)
        settings.ssl_ca_cert = str(authorities)
        settings.api_key = {"authorization": f"Bearer {token}"}
        return cls(client.ApiClient(settings), request_seconds=request_seconds)

    def within(self, seconds: float) -> Api:
        """The same server, with at most so long to connect, and between two parts of an answer."""
        limited = copy.copy(self)
        limited.limit = min(self.limit[0], seconds), min(self.limit[1], seconds)
        return limited

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.library.configuration.host)

    @property
    def token(self) -> str:
        """The bearer token of the kubeconfig's user.

        Empty for a user with a client certificate, and for one who impersonates another: whoever
        has the token alone would act with the user's own rights.
        """
        if self._impersonates:
            return ""
        settings = self.library.configuration
        scheme, _, token = (settings.get_api_key_with_prefix("authorization") or "").partition(" ")
        return token if scheme.casefold() == "bearer" else ""

    def request(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of an answer; arguments and errors as of ``answer``."""
        return self.answer(
            method,
            path,
            doing=doing,
            body=body,
            query=query,
            content_type=content_type,
            accept=accept,
            headers=headers,
        )[0]

    def answer(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Any, Mapping[str, str]]:
        """Send a request and return the answer's JSON and its headers.

        Args:
            method: HTTP method.
            path: from the root, e.g. ``/api/v1/pods``.
            doing: for messages, e.g. ``listing pods of lab``.
            body: to send as JSON.
            query: parameters.
            content_type: of the body.
            accept: wanted form of the answer.
            headers: further ones.

        Raises:
            ClusterUnavailableError: no answer, or the server is overloaded.
            NotFoundError: no such object or kind.
            NotAllowedError: the user may not do this.
            RequestRefusedError: any other refusal.
            UsageError: the user's credentials cannot be sent.
        """
        sent = {"Accept": accept, "Content-Type": content_type, **(headers or {})}

        def send() -> tuple[bytes, Mapping[str, str]]:
            given = self.library.call_api(
                path,
                method,
                query_params=list((query or {}).items()),
                header_params=sent,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=self.limit,
            )
            return given.data, given.headers

        data, received = self.call(doing, send)
        return (json.loads(data) if data else {}), received

    def pages(self, path: str, *, doing: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """The pages of a list; ``query`` has ``limit``."""
        following = ""
        while True:
            extra = {"continue": following} if following else {}
            page = self.request("GET", path, doing=doing, query={**query, **extra})
            yield page
            following = (page.get("metadata") or {}).get("continue", "")
            if not following:
                return

    def call(self, doing: str, request: Callable[[], T]) -> T:
        """Make a request of the client library; errors as ``answer`` raises them."""
        try:
            return request()
        except client.ApiException as error:
            raise refusal(doing, error) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterUnavailableError(
                doing=doing,
                cause=f"{self.server}: {cause_of(error)}",
                remedy="Check that the cluster runs, and that `kubectl config current-context` "
                "is the one you mean",
                sent=was_sent(error),
            ) from error
        except ValueError as error:
            if not (isinstance(error, UnicodeError) or str(error).startswith("Invalid header")):
                raise
            raise UsageError(  # without the error, which quotes the value: it may be a token
                f"no request can be sent while {doing}: the user's token or `as` has a line break "
                "or another character that no HTTP header may have",
                remedy="Correct the user in the kubeconfig, or the file that its tokenFile names",
            ) from None


def _is_pod_without_kubeconfig() -> bool:
    """Whether this is a pod with a service account, and kubectl's default files have no content."""
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and POD_TOKEN.exists()
    return inside and kubeconfig_file.is_default_empty()
