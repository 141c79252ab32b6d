"""Lets viewers of a shared dashboard in by a token, and limits what each of them asks at once."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_console.dashboard.guard import READING, guarded, set_viewer
from rl_console.dashboard.viewers import Viewer, Viewers
from rl_console.errors import ClusterUnavailableError, ConsoleError, NotLoggedInError

SESSION = "__Host-rl-session"
"""Cookie with the viewer's token. By its prefix browsers keep it for this host and HTTPS alone."""
LOGIN, LOGOUT, HEALTH = "/login", "/logout", "/healthz"
OPEN = (LOGIN, LOGOUT, HEALTH)
STATIC = "/static/"
MOST_AT_ONCE = 12
"""Requests of one viewer that are answered at the same time, pages that are live included, with
whichever tokens."""


def token_of(request: Request) -> tuple[str, bool]:
    """The token of a request, and whether a proxy in front has set it; empty: there is none."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.casefold() == "bearer":
        return given.strip(), True
    return request.cookies.get(SESSION, ""), False


def sent_from_here(request: Request) -> bool:
    """Whether a form of this dashboard's own pages was sent, not one of another site.

    Browsers write both headers, which pages cannot change: see "Fetch Metadata" and RFC 6454.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    _, _, origin = request.headers.get("origin", "").partition("://")
    return bool(origin) and origin == request.headers.get("host")


def to_login(request: Request) -> Response:
    """The way to the login page and back; for what a page's script asks for, the status 401."""
    path = request.url.path
    if path.endswith((".json", "/live")):
        answer: Response = JSONResponse({"problem": "You are not logged in."}, 401)
    else:
        query = request.url.query
        here = quote(f"{path}?{query}" if query else path, safe="/")
        answer = RedirectResponse(f"{LOGIN}?next={here}", 303)
    forget_cookie(answer)
    return answer


def status_of(error: ConsoleError) -> int:
    """HTTP status of a login that could not be checked."""
    return 503 if isinstance(error, ClusterUnavailableError) else 502


def forget_cookie(answer: Response) -> None:
    """Take the token out of the browser."""
    answer.delete_cookie(SESSION, path="/", secure=True, httponly=True, samesite="lax")


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, viewers: Viewers) -> None:
        """Wrap an application."""
        self._app, self._viewers = app, viewers
        self._asking: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on with its viewer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send, path = guarded(send), scope["path"]
        if path in OPEN or path.startswith(STATIC):
            await self._app(scope, receive, send)
            return
        if scope["method"] not in READING:
            await PlainTextResponse("This dashboard only shows.", 405)(scope, receive, send)
            return
        entered = await self._enter(Request(scope))
        if isinstance(entered, Response):
            await entered(scope, receive, send)
            return
        self._asking[entered.name] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._asking[entered.name] -= 1
            if not self._asking[entered.name]:
                del self._asking[entered.name]

    async def _enter(self, request: Request) -> Viewer | Response:
        """The viewer of a request, or the answer to one that is not passed on."""
        token, by_proxy = token_of(request)
        if not token:
            return to_login(request)
        try:
            viewer = await run_in_threadpool(self._viewers.of, token)
        except NotLoggedInError:
            return to_login(request)
        except ConsoleError as error:
            return PlainTextResponse(str(error), status_of(error))
        if self._asking[viewer.name] >= MOST_AT_ONCE:
            return PlainTextResponse("You ask too much at once. Close some pages.", 429)
        shown = "" if by_proxy else viewer.name
        set_viewer(request.scope, viewer.source, name=shown, who=viewer.name)
        return viewer
