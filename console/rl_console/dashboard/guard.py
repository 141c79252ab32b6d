"""Keeps other users and other pages out, and tells browsers what a page may do."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rl_console.queries.source import Source

KEY = "key"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
READING = ("GET", "HEAD")


def guarded(send: Send) -> Send:
    """Adds ``HEADERS`` to every answer."""

    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                if name != "Cache-Control" or "cache-control" not in headers:
                    headers[name] = value
        await send(message)

    return send_guarded


def set_viewer(scope: Scope, source: Source, *, name: str = "", who: str = "") -> None:
    """Give a request its viewer.

    Args:
        scope: of the request.
        source: with the viewer's rights.
        name: that pages show; empty: none.
        who: tells viewers apart.
    """
    state = {"source": source, "viewer": name, "who": who}
    scope["state"] = {**scope.get("state", {}), **state}


def new_key() -> str:
    """A key that opens one dashboard."""
    return secrets.token_urlsafe(24)


def cookie_name(key: str) -> str:
    """Name of the cookie that holds a key: browsers send a host's cookies to all of its ports."""
    return f"rl-dashboard-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


class Guard:
    """ASGI middleware.

    The process acts with its user's rights, so its port is as good as the user's kubeconfig. A
    request needs the key, first in the URL and then in a cookie, and a Host that is this machine's
    loopback: a page of another site could otherwise reach it by a name of its own.
    """

    def __init__(self, app: ASGIApp, *, source: Source, key: str, hosts: frozenset[str]) -> None:
        """Wrap an application.

        Args:
            app: what is guarded.
            source: with the user's rights.
            key: what a browser must show.
            hosts: allowed names in the header Host, without port.
        """
        self._app, self._source, self._key, self._hosts = app, source, key, hosts
        self._cookie = cookie_name(key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope)
        set_viewer(scope, self._source)
        await (refused or self._app)(scope, receive, guarded(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that is not passed on; None for the others."""
        headers = Headers(scope=scope)
        if _name(headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("This dashboard has another address.", 421)
        if scope["method"] not in READING:
            return PlainTextResponse("This dashboard only shows.", 405)
        query = parse_qs(scope["query_string"].decode("ascii", "replace"))
        shown = query.pop(KEY, [""])[0]
        if shown and self._fits(shown):
            left = urlencode(query, doseq=True)
            answer = RedirectResponse(scope["path"] + (f"?{left}" if left else ""), 303)
            answer.set_cookie(self._cookie, self._key, httponly=True, samesite="strict", path="/")
            return answer
        if not self._fits(Request(scope).cookies.get(self._cookie, "")):
            message = "Open the address that `kubectl rl dashboard` printed: it holds a key."
            return PlainTextResponse(message, 401)
        return None

    def _fits(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._key.encode())


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
