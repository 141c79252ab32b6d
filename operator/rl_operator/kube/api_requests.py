"""Sends requests to the API server: fenced by the Lease, counted, retried where that is safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from rl_operator.kube.api_errors import ApiUnavailableError, translated
from rl_operator.kube.kinds import Kind
from rl_operator.kube.transport import Client, Transport, parsed

Manifest = dict[str, Any]
Json = Mapping[str, Any]
OnRequest = Callable[[str, str, int], None]

READING = {"get", "list", "try", "review"}
"""Verbs that change nothing: any process may send them, and send them again."""
TOO_MANY = 429
TRIES = 5
WAIT_SECONDS, MAX_WAIT_SECONDS = 0.2, 2.0
"""Wait before a retry: random, up to the first value, doubled each time up to the second."""


class Requests:
    """Sends requests. For any thread."""

    def __init__(
        self,
        api: Client,
        *,
        may_write: Callable[[], None],
        on_request: OnRequest = lambda verb, kind, status: None,
        on_date: Callable[[str], None] = lambda date: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap a client.

        Args:
            api: an authenticated client.
            may_write: called before every attempt of a write; raises when this process may no
                longer write.
            on_request: called after every attempt with verb, kind and HTTP status (0: no answer).
            on_date: called with every answer's ``Date``.
            sleep: waits so many seconds.
        """
        self._transport = Transport(api)
        self._may_write, self._on_request, self._on_date = may_write, on_request, on_date
        self._tries = {reading: _tries(reading=reading, sleep=sleep) for reading in (True, False)}

    def send(
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
        """Send a request and return the parsed answer; retried where that is safe.

        One reconcile makes many requests. On an API server that throttles half of them hardly any
        reconcile would finish without retries.

        Args:
            method: of HTTP.
            path: of the URL.
            query: of the URL.
            asking: verb for the metrics, and kind.
            body: of the request.
            content: its type.
            named: path for errors, where ``path`` names no object (a creation).

        Raises:
            ClusterError: the request failed.
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
            self._on_date(answer.headers.get("Date", ""))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            cause = f"{type(error).__name__}: {error}"[:300]
            raise ApiUnavailableError(doing=doing, status=0, message=cause) from error
        finally:
            self._on_request(asking[0], asking[1].name, status)
        if not 200 <= status < 300:
            raise translated(answer, doing)
        manifest: Manifest = parsed(answer.data)
        return manifest


def _tries(*, reading: bool, sleep: Callable[[float], None]) -> Retrying:
    """The retry policy of reads, or of writes. For any number of threads."""
    return Retrying(
        retry=retry_if_exception(lambda error: _may_go_again(error, reading=reading)),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=WAIT_SECONDS, max=MAX_WAIT_SECONDS),
        sleep=sleep,
        reraise=True,
    )


def _may_go_again(error: BaseException, *, reading: bool) -> bool:
    """Whether a request may be sent again.

    A throttled request was not executed; a write that failed otherwise may have been. A broken
    connection may be that of a server that has just stopped. A timeout is not retried.
    """
    if not isinstance(error, ApiUnavailableError):
        return False
    if error.status == TOO_MANY:
        return True
    broken = isinstance(error.__cause__, urllib3.exceptions.ProtocolError)
    return reading and (error.status >= 500 or broken)
