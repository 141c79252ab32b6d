"""One request to the API server: fenced by the Lease, counted, asked again where that is safe."""

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
Asked = Callable[[str, str, int], None]

READING = {"get", "list", "try"}
TOO_MANY = 429
TRIES = 5
WAIT_SECONDS, MAX_WAIT_SECONDS = 0.2, 2.0
"""Between two tries: up to the first one, doubled each time."""


class Requests:
    """Sends requests. For any thread."""

    def __init__(
        self,
        api: Client,
        *,
        may_write: Callable[[], None],
        asked: Asked = lambda verb, kind, status: None,
        dated: Callable[[str], None] = lambda date: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap a client.

        Args:
            api: an authenticated client.
            may_write: called before every try of a write; raises where writing is not allowed any
                more.
            asked: called after every try with verb, kind and HTTP status, 0 without an answer.
            dated: called with every answer's ``Date``.
            sleep: waits so many seconds.
        """
        self._transport = Transport(api)
        self._may_write, self._asked, self._dated = may_write, asked, dated
        self._tries = {one: _tries(reading=one, sleep=sleep) for one in (True, False)}

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
        """The answer; asked again where that changes nothing.

        One look makes many requests. On an API server that turns half of them away hardly any look
        would come through if each had but one try.

        Args:
            method: of HTTP.
            path: of the URL.
            query: of the URL.
            asking: verb, as it is counted, and kind.
            body: of the request.
            content: its type.
            named: what errors tell of, where the path, as that of a creation, names no object.

        Raises:
            ClusterError: what came of it.
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
            raise translated(answer, doing)
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
    """What was turned away has not been begun; a write that failed otherwise may be done.

    A connection that breaks may have been one of a server that has just stopped; an answer that
    does not come is not waited for again.
    """
    if not isinstance(error, ApiUnavailableError):
        return False
    if error.status == TOO_MANY:
        return True
    broken = isinstance(error.__cause__, urllib3.exceptions.ProtocolError)
    return reading and (error.status >= 500 or broken)
