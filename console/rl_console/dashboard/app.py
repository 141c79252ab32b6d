"""The application: routes, templates and errors."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rl_console.dashboard.guard import Guard
from rl_console.dashboard.live import live
from rl_console.dashboard.pages import Pages
from rl_console.dashboard.shown import FILTERS
from rl_console.errors import (
    ClusterUnavailableError,
    ConsoleError,
    NotAllowedError,
    NotFoundError,
    UsageError,
)
from rl_console.queries.source import Source
from rl_contracts.errors import RLError

FOLDER = Path(__file__).parent
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "There is no such thing"),
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
    """The dashboard of what a viewer may see.

    Args:
        source: with the viewer's rights.
        key: that a browser must show, see ``Guard``.
        namespace: shown first; empty: all.
        hosts: names by which the dashboard may be reached.
    """
    templates = environment()
    pages = Pages(source, templates, namespace=namespace)
    job = "/n/{namespace}/jobs/{job}"

    async def follow(request: Request) -> Response:
        return await live(source, request)

    routes = [
        Route("/", pages.runs),
        Route("/compare", pages.compare),
        Route("/compare.json", pages.compare_data),
        Route("/n/{namespace}", pages.runs),
        Route(job, pages.run),
        Route(f"{job}/metrics.json", pages.metrics),
        Route(f"{job}/live", follow),
        Route(f"{job}/steps/{{step:int}}", pages.step),
        Route(f"{job}/prompts", pages.prompts),
        Route(f"{job}/rollouts/{{rollout}}", pages.rollout),
        Route(f"{job}/search", pages.search),
        Route(f"{job}/policies", pages.policies),
        Route(f"{job}/pools", pages.pools),
        Route(f"{job}/timeline", pages.timeline),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]

    def failed(request: Request, error: Exception) -> Response:
        status, title = next(
            ((code, said) for kind, code, said in STATUS if isinstance(error, kind)),
            (getattr(error, "status_code", 500), "There is no such page"),
        )
        said = _said(error)
        if request.url.path.endswith(".json"):
            return JSONResponse({"problem": said}, status)
        page = templates.get_template("error.html").render(
            title=title, said=said, status=status, crumbs=[]
        )
        return HTMLResponse(page, status)

    kinds: list[type[Exception]] = [kind for kind, _, _ in STATUS]
    handlers = dict.fromkeys([*kinds, HTTPException], failed)
    return Starlette(
        routes=routes,
        exception_handlers=handlers,
        middleware=[Middleware(Guard, key=key, hosts=hosts)],
    )


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if isinstance(error, HTTPException):
        return str(error.detail)
    return str(error)
