"""The application: routes, templates and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from rl_console.dashboard.guard import Guard
from rl_console.dashboard.live import live
from rl_console.dashboard.pages import Pages
from rl_console.dashboard.shown import FILTERS
from rl_console.dashboard.streams import Streams
from rl_console.dashboard.threads import Threads
from rl_console.errors import (
    ClusterUnavailableError,
    ConsoleError,
    NotAllowedError,
    NotFoundError,
    NotLoggedInError,
    UsageError,
)
from rl_console.queries.source import Source
from rl_contracts.errors import RLError

FOLDER = Path(__file__).parent
MOST_LISTINGS, MOST_ASKING, MOST_LIVE_READS = 2, 32, 16
"""Lists of runs, other pages, and reads of live pages that run at the same time. While an
operator does not answer, its pages wait for it, and lists do not."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
Failed = Callable[[Request, Exception], Response]
STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "There is no such thing"),
    (NotLoggedInError, 401, "The cluster does not know you"),
    (NotAllowedError, 403, "You may not see this"),
    (UsageError, 400, "This cannot be answered"),
    (ValidationError, 400, "This cannot be answered"),
    (ClusterUnavailableError, 503, "The cluster does not answer"),
    (ConsoleError, 502, "This cannot be shown now"),
    (RLError, 502, "This cannot be shown now"),
)


def environment() -> Environment:
    """The templates: everything is escaped, and a misspelt name is an error."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    return made


def application(
    source: Source, *, key: str, namespace: str = "", hosts: frozenset[str] = LOOPBACK
) -> Starlette:
    """The dashboard of one user, on the user's own machine.

    Args:
        source: with the user's rights.
        key: that a browser must show, see ``Guard``.
        namespace: shown first; empty: all.
        hosts: names by which the dashboard may be reached.
    """
    guard = Middleware(Guard, source=source, key=key, hosts=hosts)
    return assembled(environment(), guard, namespace=namespace)


def assembled(
    templates: Environment,
    guard: Middleware,
    *,
    namespace: str = "",
    routes: Sequence[BaseRoute] = (),
    not_logged_in: Failed | None = None,
) -> Starlette:
    """The pages behind a guard that sets each request's viewer.

    Args:
        templates: of the pages.
        guard: middleware that calls ``set_viewer``, or answers by itself.
        namespace: shown first; empty: all.
        routes: further ones.
        not_logged_in: answers a request whose token the API server does not know (any more).
    """
    job = "/n/{namespace}/jobs/{job}"

    listing, asking = Threads(MOST_LISTINGS), Threads(MOST_ASKING)

    def page(
        shown: Callable[[Pages, Request], Response], threads: Threads = asking
    ) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            state = request.state
            pages = Pages(state.source, templates, namespace=namespace, viewer=state.viewer)
            return await threads.run(shown, pages, request)

        return show

    async def follow(request: Request) -> Response:
        return await live(request.state.source, request)

    pages = [
        Route("/", page(Pages.runs, listing)),
        Route("/compare", page(Pages.compare)),
        Route("/compare.json", page(Pages.compare_data)),
        Route("/n/{namespace}", page(Pages.runs, listing)),
        Route(job, page(Pages.run)),
        Route(f"{job}/metrics.json", page(Pages.metrics)),
        Route(f"{job}/live", follow),
        Route(f"{job}/steps/{{step:int}}", page(Pages.step)),
        Route(f"{job}/prompts", page(Pages.prompts)),
        Route(f"{job}/rollouts/{{rollout}}", page(Pages.rollout)),
        Route(f"{job}/rollouts/{{rollout}}/images/{{sha256}}", page(Pages.image)),
        Route(f"{job}/search", page(Pages.search)),
        Route(f"{job}/policies", page(Pages.policies)),
        Route(f"{job}/pools", page(Pages.pools)),
        Route(f"{job}/timeline", page(Pages.timeline)),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]

    def failed(request: Request, error: Exception) -> Response:
        status, title = next(
            ((code, heading) for kind, code, heading in STATUS if isinstance(error, kind)),
            (getattr(error, "status_code", 500), "There is no such page"),
        )
        message = _message(error)
        if request.url.path.endswith(".json"):
            return JSONResponse({"problem": message}, status)
        viewer = getattr(request.state, "viewer", "")
        shown = templates.get_template("error.html").render(
            title=title, said=message, status=status, crumbs=[], viewer=viewer
        )
        return HTMLResponse(shown, status)

    kinds: list[type[Exception]] = [kind for kind, _, _ in STATUS]
    handlers: dict[Any, Failed] = dict.fromkeys([*kinds, HTTPException], failed)
    if not_logged_in is not None:
        handlers[NotLoggedInError] = not_logged_in
    app = Starlette(routes=[*pages, *routes], exception_handlers=handlers, middleware=[guard])
    app.state.streams = Streams()
    app.state.reading_threads = Threads(MOST_LIVE_READS)
    return app


def _message(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if isinstance(error, HTTPException):
        return str(error.detail)
    return str(error)
