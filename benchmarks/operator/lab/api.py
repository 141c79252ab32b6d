"""A bare client of the API server: what a script has, without models and retries."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import urllib3

from tests.kube.apiserver import ApiServer

Manifest = dict[str, Any]
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused."""

    def __init__(self, doing: str, status: int, answer: bytes) -> None:
        self.status = status
        super().__init__(f"{doing}: {status} {answer[:300]!r}")


class Api:
    """Requests as an administrator."""

    def __init__(self, server: ApiServer) -> None:
        self._url = server.url
        self._headers = {"Authorization": f"Bearer {server.token}"}
        self._pool = urllib3.PoolManager(
            maxsize=64, cert_reqs="CERT_REQUIRED", ca_certs=str(server.certificate)
        )

    def send(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> Manifest:
        """One request; a body that is text goes as it is."""
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        answer = self._pool.request(
            method, self._url + path, body=data, headers={**self._headers, "Content-Type": content}
        )
        if answer.status >= 400:
            raise ApiError(f"{method} {path}", answer.status, answer.data)
        manifest: Manifest = json.loads(answer.data)
        return manifest

    def text(self, path: str) -> str:
        """What a path answers, as it is."""
        answer = self._pool.request("GET", self._url + path, headers=self._headers)
        return answer.data.decode()

    def watch(self, path: str, ended: threading.Event) -> Iterator[tuple[str, Manifest]]:
        """Events of a collection from its beginning, until ``ended`` is set."""
        version = ""
        while not ended.is_set():
            query = f"watch=true&allowWatchBookmarks=true&resourceVersion={version or 0}"
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                answer = self._pool.request(
                    "GET",
                    f"{self._url}{path}?{query}",
                    headers=self._headers,
                    preload_content=False,
                    timeout=urllib3.Timeout(connect=10, read=5),
                )
                for kind, item in _events(answer):
                    if kind == "ERROR":  # too old: from the beginning
                        version = ""
                        break
                    version = item["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        yield kind, item
                    if ended.is_set():
                        break
                answer.close()


def _events(answer: urllib3.BaseHTTPResponse) -> Iterator[tuple[str, Manifest]]:
    held = b""
    for piece in answer.stream():
        *whole, held = (held + piece).split(b"\n")
        for line in whole:
            event = json.loads(line)
            yield event["type"], event["object"]
