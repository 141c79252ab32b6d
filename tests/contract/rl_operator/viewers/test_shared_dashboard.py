"""The dashboard that many share: each viewer gets what RBAC gives, by every route."""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.dashboard import gate
from rl_console.dashboard.gate import SESSION
from rl_console.dashboard.guard import POLICY
from rl_console.dashboard.shared import shared_application
from rl_console.dashboard.viewers import MOST_TOKEN, Viewer, Viewers
from rl_console.errors import NotLoggedInError
from rl_console.queries.cluster_source import ClusterSource
from rl_console.tools import Tools
from tests.contract.rl_operator.viewing import Viewing, a_viewer
from tests.contract.rl_operator.world import WORLD_SYSTEM, a_namespace
from tests.kube.apiserver import ApiServer, apply
from tests.samples.manifests import a_job
from tests.samples.viewed_run import screen
from tests.servers import free_port

HOST = "https://runs.example.org"
OURS = {"Origin": HOST}
"""What a browser sends with a form of the dashboard's own."""
BY_ROUTE = {
    "/": "/?namespace={namespace}",
    "/compare": "/compare?run={namespace}/job",
    "/compare.json": "/compare.json?run={namespace}/job",
    "/n/{namespace}": "/n/{namespace}",
    "/n/{namespace}/jobs/{job}": "/n/{namespace}/jobs/job",
    "/n/{namespace}/jobs/{job}/metrics.json": "/n/{namespace}/jobs/job/metrics.json",
    "/n/{namespace}/jobs/{job}/live": "/n/{namespace}/jobs/job/live",
    "/n/{namespace}/jobs/{job}/steps/{step:int}": "/n/{namespace}/jobs/job/steps/1",
    "/n/{namespace}/jobs/{job}/prompts": "/n/{namespace}/jobs/job/prompts",
    "/n/{namespace}/jobs/{job}/rollouts/{rollout}": (
        "/n/{namespace}/jobs/job/rollouts/{run}.train.00000000.1.0?step=1"
    ),
    "/n/{namespace}/jobs/{job}/rollouts/{rollout}/images/{sha256}": (
        "/n/{namespace}/jobs/job/rollouts/{run}.train.00000000.1.0/images/{screen}"
    ),
    "/n/{namespace}/jobs/{job}/search": "/n/{namespace}/jobs/job/search",
    "/n/{namespace}/jobs/{job}/policies": "/n/{namespace}/jobs/job/policies",
    "/n/{namespace}/jobs/{job}/pools": "/n/{namespace}/jobs/job/pools",
    "/n/{namespace}/jobs/{job}/timeline": "/n/{namespace}/jobs/job/timeline",
}
"""A request for each route that shows something of a run."""
OPEN_ROUTES = {"/healthz", "/login", "/logout"}


@dataclass(frozen=True, kw_only=True)
class House:
    """Two namespaces, each with a viewer of its own, and a job in the first; no operator runs."""

    apiserver: ApiServer
    namespace: str
    other: str
    mine: str
    theirs: str

    @property
    def job(self) -> str:
        return f"/n/{self.namespace}/jobs/job"

    def viewers(self, operator_namespace: str = "absent") -> Viewers:
        server = self.apiserver
        return Viewers(
            server.url, authorities=server.certificate, operator_namespace=operator_namespace
        )


@pytest.fixture(scope="module")
def house(apiserver: ApiServer) -> House:
    first, second = a_namespace(apiserver), a_namespace(apiserver)
    assert not apply(apiserver, a_job("job", namespace=first))
    return House(
        apiserver=apiserver,
        namespace=first,
        other=second,
        mine=a_viewer(apiserver, first),
        theirs=a_viewer(apiserver, second),
    )


def opened(app: Starlette, token: str = "") -> TestClient:
    """A browser, logged in with a token where one is given."""
    client = TestClient(app, base_url=HOST, follow_redirects=False)
    if token:
        answer = client.post("/login", data={"token": token}, headers=OURS)
        assert (answer.status_code, answer.headers["location"]) == (303, "/"), answer.text
    return client


Browser = Callable[..., TestClient]


@pytest.fixture(scope="module")
def app(house: House) -> Starlette:
    return shared_application(house.viewers())


@pytest.fixture(scope="module")
def browser(app: Starlette) -> Browser:
    return functools.partial(opened, app)


def addresses(namespace: str, run: str = "run") -> dict[str, str]:
    screenshot = hashlib.sha256(screen(0)).hexdigest()
    values = {"namespace": namespace, "run": run, "screen": screenshot}
    return {
        route: re.sub(r"\{(\w+)\}", lambda match: values[match[1]], address)
        for route, address in BY_ROUTE.items()
    }


def test_every_route_is_in_the_table(app: Starlette) -> None:
    paths = {route.path for route in app.routes if isinstance(route, Route)}
    assert paths == set(BY_ROUTE) | OPEN_ROUTES
    assert [route.path for route in app.routes if isinstance(route, Mount)] == ["/static"]


def test_a_viewer_of_one_namespace_gets_nothing_of_another_by_any_route(
    viewing: Viewing, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewing.publish()
    monkeypatch.setattr("rl_console.dashboard.live.MOST_SECONDS", 0.01)
    monkeypatch.setattr("rl_console.dashboard.live.SECONDS", 0.02)
    app = shared_application(house.viewers(WORLD_SYSTEM))
    mine, theirs = opened(app, viewing.mine), opened(app, viewing.theirs)
    for route, address in addresses(viewing.world.namespace, viewing.run).items():
        own = mine.get(address, follow_redirects=True)
        assert own.status_code == 200, (route, own.text)
        assert '"problem"' not in own.text, (route, own.text)
        other = theirs.get(address, follow_redirects=True)
        for secret in (viewing.run, "reward_mean", "exact", "Attempt", "calculator", "Digest"):
            assert secret not in other.text, (route, secret)
        if route.endswith(".json") or route.endswith("/live"):
            assert "403 Forbidden" in other.text, route
        else:
            assert other.status_code == 403, (route, other.text)
            assert "cannot get resource" in other.text or "cannot list resource" in other.text


def test_without_a_token_every_route_leads_to_the_login(house: House, browser: Browser) -> None:
    stranger = browser()
    for token in ("", "guess", secrets.token_hex(64), house.mine[:-4] + "AAAA"):
        for route, address in addresses(house.namespace).items():
            stranger.cookies.clear()
            if token:
                stranger.cookies.set(SESSION, token, domain="runs.example.org")
            answer = stranger.get(address)
            if route.endswith((".json", "/live")):
                assert answer.status_code == 401, route
            else:
                assert answer.status_code == 303, route
                assert answer.headers["location"].startswith("/login?next=/"), route
            assert "ExactMatch" not in answer.text


def test_the_cookie_is_for_this_host_and_https_and_no_script(
    house: House, browser: Browser
) -> None:
    client = browser()
    where = f"{house.job}?x=1"
    sent = client.get(where).headers["location"]
    page = client.get(sent)
    (following,) = re.findall(r'name="next" value="([^"]*)"', page.text)
    assert following == where
    form = {"token": house.mine, "next": following}
    answer = client.post("/login", data=form, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, where)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-")
    for attribute in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert attribute in cookie
    assert "Domain" not in cookie
    shown = client.get(where).text
    assert f"system:serviceaccount:{house.namespace}:viewer" in shown
    assert house.mine not in shown
    assert client.post("/logout", headers=OURS).headers["location"] == "/login"
    assert client.get(where).status_code == 303


@pytest.mark.parametrize(
    "elsewhere",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/\nx", "javascript:alert(1)"],
)
def test_a_login_leads_nowhere_else(house: House, browser: Browser, elsewhere: str) -> None:
    form = {"token": house.mine, "next": elsewhere}
    answer = browser().post("/login", data=form, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {**OURS, "Sec-Fetch-Site": "cross-site"},
        {**OURS, "Sec-Fetch-Site": "same-site"},
    ],
)
def test_forms_of_other_sites_do_nothing(
    house: House, browser: Browser, headers: dict[str, str]
) -> None:
    client = browser(house.mine)
    answer = client.post("/login", data={"token": house.theirs}, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert client.post("/logout", headers=headers).status_code == 403
    assert client.cookies[SESSION] == house.mine


def test_a_browser_that_says_where_a_form_comes_from_needs_no_origin(
    house: House, browser: Browser
) -> None:
    """A proxy in front may have changed the header Host."""
    headers = {"Sec-Fetch-Site": "same-origin", "Origin": "https://outside.example"}
    answer = browser().post("/login", data={"token": house.mine}, headers=headers)
    assert answer.status_code == 303


@pytest.mark.parametrize("token", ["", "guess", "a b", "x\r\ny: z", "x" * (MOST_TOKEN + 1)])
def test_what_is_no_token_is_refused_at_the_login(browser: Browser, token: str) -> None:
    answer = browser().post("/login", data={"token": token}, headers=OURS)
    assert answer.status_code in (400, 401)
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert token not in answer.text or not token


def test_a_form_that_is_too_long_is_not_read(browser: Browser) -> None:
    body = "token=" + "x" * (1 << 20)
    headers = {**OURS, "Content-Type": "application/x-www-form-urlencoded"}
    assert browser().post("/login", content=body, headers=headers).status_code == 401


def test_a_proxy_in_front_may_send_the_token(house: House, browser: Browser) -> None:
    address = house.job
    answer = browser().get(address, headers={"Authorization": f"Bearer {house.mine}"})
    assert answer.status_code == 200
    assert "Log out" not in answer.text
    # The proxy's token wins over the cookie of somebody who has logged in here.
    other = {"Authorization": f"Bearer {house.theirs}"}
    assert browser(house.mine).get(address, headers=other).status_code == 403
    impersonated = {"Impersonate-User": "admin", "X-Remote-User": "admin", "X-RL-Token": "x"}
    assert browser(house.theirs).get(address, headers=impersonated).status_code == 403
    assert browser().get(address, headers=impersonated).status_code == 303


def test_a_token_that_has_run_out_leads_to_the_login(house: House) -> None:
    """The dashboard remembers its owner; the API server knows the token no more."""
    viewers, token = house.viewers(), a_viewer(house.apiserver, house.namespace, name="guest")
    house.apiserver.kubectl("-n", house.namespace, "delete", "serviceaccount", "guest")
    server = house.apiserver
    api = Api.of_token(server.url, token, authorities=server.certificate)
    source = ClusterSource(Cluster(api), Tools())
    viewers.remember(token, Viewer(name="guest", source=source))
    client = opened(shared_application(viewers))
    client.cookies.set(SESSION, token, domain="runs.example.org")
    answer = client.get(house.job)
    assert answer.headers["location"] == f"/login?next={house.job}"
    assert SESSION not in client.cookies
    with pytest.raises(NotLoggedInError):
        viewers.of(token)


def test_nothing_can_be_changed(house: House, browser: Browser) -> None:
    client = browser(house.mine)
    for address in addresses(house.namespace).values():
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert client.request(method, address, headers=OURS).status_code == 405


def test_every_answer_forbids_other_hosts_and_inline_scripts(
    house: House, browser: Browser
) -> None:
    client = browser(house.mine)
    for address in ("/", "/login", "/healthz", "/nothing", "/static/app.css", "/n/absent"):
        headers = client.get(address).headers
        assert headers["content-security-policy"] == POLICY, address
        assert headers["cache-control"] == "no-store" or address.startswith("/static/")
    assert browser().get("/static/app.css").status_code == 200
    assert browser().get("/static/../shared.py").status_code in (303, 404)


def test_who_may_not_list_all_namespaces_is_asked_for_one(house: House, browser: Browser) -> None:
    client = browser(house.mine)
    assert "Which namespace?" in client.get("/").text
    answer = client.get(f"/?namespace={house.namespace}")
    assert answer.headers["location"] == f"/n/{house.namespace}"
    odd = client.get("/?namespace=../../login%3Fx").headers["location"]
    assert odd == "/n/..%2F..%2Flogin%3Fx"


def test_one_viewer_cannot_occupy_the_dashboard(
    house: House, app: Starlette, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "MOST_AT_ONCE", 1)
    waiting, go_on = threading.Event(), threading.Event()

    def slow(self: Any, request: Any) -> Any:
        waiting.set()
        assert go_on.wait(60)
        raise RuntimeError

    mine = browser(house.mine)
    monkeypatch.setattr("rl_console.dashboard.pages.Pages._job", slow)
    address = f"{house.job}/pools"
    quiet = TestClient(app, base_url=HOST, raise_server_exceptions=False)
    quiet.cookies = mine.cookies
    asking = threading.Thread(target=quiet.get, args=(address,))
    asking.start()
    assert waiting.wait(60)
    try:
        assert mine.get("/").status_code == 429
        assert browser(house.theirs).get("/").status_code == 200
    finally:
        go_on.set()
        asking.join()
    assert mine.get("/").status_code == 200


def test_an_api_server_that_is_away_is_said(browser: Browser, house: House) -> None:
    server = house.apiserver
    away = Viewers(
        f"https://127.0.0.1:{free_port()}",
        authorities=server.certificate,
        operator_namespace=WORLD_SYSTEM,
    )
    client = TestClient(shared_application(away), base_url=HOST, follow_redirects=False)
    answer = client.post("/login", data={"token": house.mine}, headers=OURS)
    assert (answer.status_code, "did not answer" in answer.text) == (503, True)
    client.cookies.set(SESSION, house.mine, domain="runs.example.org")
    assert client.get("/").status_code == 503
    assert client.get("/healthz").text == "ok"


def test_a_server_with_another_certificate_gets_no_token(house: House, tmp_path: Any) -> None:
    made = ("-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=other")
    other = tmp_path / "other.crt"
    command = ["openssl", "req", "-x509", *made, "-keyout", tmp_path / "key", "-out", other]
    subprocess.run(command, check=True, capture_output=True)
    server = house.apiserver
    viewers = Viewers(server.url, authorities=other, operator_namespace=WORLD_SYSTEM)
    client = TestClient(shared_application(viewers), base_url=HOST)
    answer = client.post("/login", data={"token": house.mine}, headers=OURS)
    assert (answer.status_code, "certificate" in answer.text) == (503, True), answer.text
