from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from rl_console.dashboard.guard import Guard


def page(request: Request) -> Response:
    return PlainTextResponse("shown")


def a_dashboard(key: str, port: int) -> TestClient:
    nothing: Any = None
    guard = Middleware(Guard, source=nothing, key=key, hosts=frozenset({"127.0.0.1"}))
    app = Starlette(routes=[Route("/", page)], middleware=[guard])
    return TestClient(app, base_url=f"http://127.0.0.1:{port}")


def test_a_second_dashboard_does_not_end_the_first() -> None:
    """A browser keeps the cookies of all ports of a host together."""
    first, second = a_dashboard("one", 1001), a_dashboard("two", 1002)
    assert first.get("/?key=one").text == "shown"
    second.cookies = first.cookies
    assert second.get("/").status_code == 401
    assert second.get("/?key=two").text == "shown"
    first.cookies = second.cookies
    assert first.get("/").text == "shown"
