"""Connections to the API server: credentials, HTTP, JSON.

Uses the Kubernetes client's connections and credentials, but not its models, which cost more than
the request itself.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config
from kubernetes.config import kube_config
from pydantic_core import from_json, to_json

from rl_contracts.addresses import proxy_headers, proxy_of
from rl_contracts.kubeconfig import current_context
from rl_operator.kube.nesting import any_depth

CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
TIMEOUT = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
READS = urllib3.Retry(3, connect=1, read=False, respect_retry_after_header=False)
"""Timeouts are not retried: four of them at a server that hangs would hold a worker for a minute.
Retry-After is not obeyed here either; redirects count as retries."""
Client: TypeAlias = client.ApiClient


class Transport:
    """Sends HTTP requests to one API server. For any thread."""

    def __init__(self, api: Client) -> None:
        """Use an authenticated client's."""
        manager, url = api.rest_client.pool_manager, api.configuration.host
        self._api, self._manager, self._url = api, manager, url
        # A proxy, and plain HTTP, need the manager.
        direct = manager.proxy is None and url.startswith("https://")
        self._pool = manager.connection_from_url(url) if direct else None
        self._prefix = urllib3.util.parse_url(url).path or ""

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        *,
        body: Mapping[str, Any] | None,
        content: str,
    ) -> urllib3.BaseHTTPResponse:
        """The answer, whatever its status.

        Raises:
            urllib3.exceptions.HTTPError: no answer.
            OSError: no answer.
        """
        path = f"{path}?{urlencode(query)}" if query else path
        text = text_of(body) if body is not None else None
        headers = self._headers(content)
        options: dict[str, Any] = {"body": text, "headers": headers, "timeout": TIMEOUT}
        # A write must not be sent again after 15 s: another process may hold the Lease by then.
        options["retries"] = READS if method == "GET" else False
        answer: urllib3.BaseHTTPResponse
        if self._pool is None:
            answer = self._manager.request(method, self._url + path, **options)
        else:
            answer = self._pool.urlopen(method, self._prefix + path, **options)
        return answer

    def _headers(self, content: str) -> dict[str, str]:
        headers = {**self._api.default_headers, "Accept": "application/json"}
        headers["Content-Type"] = content
        self._api.update_params_for_auth(headers, [], ["BearerToken"])  # renews it, too
        return headers


def authenticated(connections: int) -> Client:
    """A client with the pod's service account, or outside of a cluster with the kubeconfig.

    Args:
        connections: size of the connection pool.
    """
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        named = kube_config.KubeConfigMerger(kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
        context = current_context(named.config_files[path] for path in named.paths)
        config.load_kube_config(context=context, client_configuration=configuration)
    # The library uses HTTP_PROXY for HTTPS, and neither NO_PROXY nor a proxy's user and password.
    configuration.proxy = proxy_of(configuration.host, os.environ)
    configuration.proxy_headers = proxy_headers(configuration.proxy or "")
    configuration.connection_pool_maxsize = connections
    return client.ApiClient(configuration)


_ESCAPED = re.compile("[\x7f-\uffff]")


def text_of(body: Mapping[str, Any]) -> bytes:
    """JSON bytes of a body, written so that a YAML parser reads the same strings.

    The API server parses the body of a server-side apply as YAML, which differs from JSON twice:

    - it rejects raw control characters (DEL, C1, U+FFFE, U+FFFF) and folds raw line separators, so
      all characters from U+007F to U+FFFF are written as escapes;
    - it rejects the surrogate pairs by which JSON escapes characters beyond U+FFFF (emoji), so
      these stay raw UTF-8, which YAML accepts.

    Raises:
        PydanticSerializationError: a string holds half of a surrogate pair, which is no text.
    """
    text = to_json(body)
    if text.isascii() and b"\x7f" not in text:
        return text
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text.decode()).encode()


def parsed(text: bytes) -> Any:
    """Data of JSON.

    Strings but keys are not kept for the next time: hardly a value comes twice, and looking for it
    takes as long as reading it.
    """
    return _parsed(text)


_parsed = any_depth(functools.partial(from_json, cache_strings="keys"))
