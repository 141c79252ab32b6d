"""The dashboard that many share, within a cluster."""

from __future__ import annotations

from urllib.parse import parse_qs

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from rl_console.dashboard.app import assembled, environment
from rl_console.dashboard.gate import (
    HEALTH,
    LOGIN,
    LOGOUT,
    SESSION,
    Gate,
    forget_cookie,
    sent_from_here,
    status_of,
    to_login,
    token_of,
)
from rl_console.dashboard.viewers import MOST_TOKEN, Viewers
from rl_console.errors import ConsoleError, NotLoggedInError

MOST_FORM = 16 << 10
"""Bytes of a form."""
FROM_ELSEWHERE = PlainTextResponse("This form was sent from another site.", 403)


def shared_application(viewers: Viewers) -> Starlette:
    """The dashboard for users of the cluster, each with the rights of the token that it shows."""
    templates = environment()
    login = Login(viewers, templates)
    return assembled(
        templates,
        Middleware(Gate, viewers=viewers),
        routes=[
            Route(HEALTH, health),
            Route(LOGIN, login.show, methods=["GET"]),
            Route(LOGIN, login.enter, methods=["POST"]),
            Route(LOGOUT, login.leave, methods=["POST"]),
        ],
        not_logged_in=login.expired,
    )


async def health(request: Request) -> Response:
    """Says that this process answers, also while every thread waits for the API server."""
    return PlainTextResponse("ok")


class Login:
    """Takes tokens into cookies, and out of them."""

    def __init__(self, viewers: Viewers, templates: Environment) -> None:
        """Let in whom ``viewers`` know."""
        self._viewers, self._templates = viewers, templates

    def show(self, request: Request) -> Response:
        """The page that asks for a token."""
        return self._asked(_local(request.query_params.get("next", "")))

    async def enter(self, request: Request) -> Response:
        """Check the token of the form, and keep it in a cookie."""
        if not sent_from_here(request):
            return FROM_ELSEWHERE
        form = await _form(request)
        token, following = form.get("token", "").strip(), _local(form.get("next", ""))
        if len(token) > MOST_TOKEN:
            message = f"The token has more than {MOST_TOKEN:,} characters and fits no cookie."
            return self._asked(following, f"{message} Put a proxy in front that sends it.", 400)
        try:
            await run_in_threadpool(self._viewers.of, token)
        except NotLoggedInError:
            return self._asked(following, "The cluster does not know this token.", 401)
        except ConsoleError as error:
            return self._asked(following, str(error), status_of(error))
        answer = RedirectResponse(following, 303)
        answer.set_cookie(SESSION, token, path="/", secure=True, httponly=True, samesite="lax")
        return answer

    def leave(self, request: Request) -> Response:
        """Take the token out of the cookie."""
        if not sent_from_here(request):
            return FROM_ELSEWHERE
        answer = RedirectResponse(LOGIN, 303)
        forget_cookie(answer)
        return answer

    def expired(self, request: Request, error: Exception) -> Response:
        """Answer a request whose token the API server does not know any more."""
        self._viewers.forget(token_of(request)[0])
        return to_login(request)

    def _asked(self, following: str, message: str = "", status: int = 200) -> Response:
        shown = self._templates.get_template("login.html").render(
            title="Log in", crumbs=[], viewer="", said=message, next=following, most=MOST_TOKEN
        )
        return HTMLResponse(shown, status)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; none of one that is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM:
            return {}
    fields = parse_qs(body.decode("utf-8", "replace"))
    return {name: values[0] for name, values in fields.items()}


def _local(address: str) -> str:
    """The address if it is one of this dashboard, else its first page.

    Browsers take two slashes, also backslashes, for the beginning of another host.
    """
    plain = address.isprintable() and address.startswith("/")
    plain = plain and address[1:2] not in ("/", "\\")
    return address if plain else "/"
