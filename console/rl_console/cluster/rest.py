"""Sends requests of the client library with headers and credentials that it cannot send itself."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import urllib3
from kubernetes import client
from kubernetes.client.rest import RESTClientObject

from rl_console.cluster.credentials import Held, Loader


class Impersonating(RESTClientObject):  # type: ignore[misc]
    """Adds headers to each request: the library's default headers cannot have one name twice."""

    def __init__(self, settings: Any, headers: urllib3.HTTPHeaderDict) -> None:
        super().__init__(settings)
        self._headers = headers

    def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """As of the library; every other method of it calls this one."""
        sent = urllib3.HTTPHeaderDict(headers or {})
        sent.extend(self._headers)
        return super().request(method, url, query_params, sent, **options)


class Renewing(Impersonating):
    """Sends what a credential plugin gave last, and repeats a request once that is refused for it.

    The library renews no certificate, and no credential that is refused before it runs out.
    """

    def __init__(self, settings: Any, headers: urllib3.HTTPHeaderDict, loader: Loader) -> None:
        super().__init__(settings, headers)
        self._settings, self._loader = settings, loader
        self._certificate = settings.cert_file, settings.key_file
        self._connecting = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """As of the library.

        A request that is refused with 401 has done nothing, so that it can be repeated.
        """

        def send(held: Held) -> Any:
            sent = self._authorized(headers or {}, held.token)
            self._show(held)
            return super(Renewing, self).request(method, url, query_params, sent, **options)

        held = self._loader.held
        try:
            return send(held)
        except client.ApiException as error:
            if error.status != HTTPStatus.UNAUTHORIZED:
                raise
            self._loader.renew(self._settings, refused=held)
            if self._loader.held == held:
                raise
        return send(self._loader.held)

    @staticmethod
    def _authorized(headers: Mapping[str, str], token: str) -> dict[str, str]:
        others = {name: text for name, text in headers.items() if name.lower() != "authorization"}
        return {**others, "authorization": token} if token else others

    def _show(self, held: Held) -> None:
        """Show servers this certificate; it needs new connections where they had another one."""
        certificate = held.certificate, held.key
        with self._connecting:
            if certificate != self._certificate:
                settings = copy.copy(self._settings)
                settings.cert_file, settings.key_file = certificate
                super().__init__(settings, self._headers)
                self._certificate = certificate
