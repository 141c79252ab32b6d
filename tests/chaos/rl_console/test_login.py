"""Chromium logs in to the dashboard that many share, and keeps its cookie over localhost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_console.dashboard.shared import shared_application
from rl_console.dashboard.viewers import Viewers
from tests.chaos.rl_console.walk import AXE, WIDTHS
from tests.contract.rl_operator.viewing import a_viewer
from tests.contract.rl_operator.world import a_namespace
from tests.kube.apiserver import ApiServer, apply
from tests.network.chromium import Page, browsing
from tests.network.served import served
from tests.samples.manifests import a_job


@pytest.fixture(scope="module")
def namespace(apiserver: ApiServer) -> str:
    made = a_namespace(apiserver)
    assert not apply(apiserver, a_job("sums", namespace=made))
    return made


@pytest.fixture(scope="module")
def address(apiserver: ApiServer) -> Iterator[str]:
    viewers = Viewers(apiserver.url, authorities=apiserver.certificate, operator_namespace="absent")
    with served(shared_application(viewers)) as port:
        yield f"http://localhost:{port}"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("profile")) as page:
        yield page


def send(page: Page, name: str, value: str) -> None:
    """Fill in the form that holds a field, and send it."""
    page.evaluate(f"document.querySelector('[name={name}]').value = {json.dumps(value)}; 0")
    page.evaluate(f"document.querySelector('[name={name}]').form.requestSubmit(); 0")


def has_no_barrier(page: Page) -> None:
    page.evaluate(f"{AXE}; 0")
    violations = page.evaluate("axe.run().then(each => each.violations.map(one => one.id))")
    assert violations == []


def test_a_person_logs_in_chooses_a_namespace_and_logs_out(
    apiserver: ApiServer, chromium: Page, address: str, namespace: str, tmp_path: Path
) -> None:
    token = a_viewer(apiserver, namespace)
    for theme in ("light", "dark"):
        for width in WIDTHS:
            chromium.look(width=width, theme=theme)
            chromium.open(f"{address}/")
            chromium.until("location.pathname == '/login'")
            assert chromium.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            chromium.screenshot(tmp_path / f"login-{width}-{theme}.png")
        has_no_barrier(chromium)
    send(chromium, "token", "guess")
    chromium.until("document.querySelector('[role=alert]')")
    has_no_barrier(chromium)
    chromium.complaints.clear()  # the status 401 of the refused login
    send(chromium, "token", token)
    chromium.until("document.querySelector('[name=namespace]')")
    assert "rl-session" not in chromium.evaluate("document.cookie")
    for width in WIDTHS:
        chromium.look(width=width, theme="light")
        assert chromium.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        chromium.screenshot(tmp_path / f"namespace-{width}.png")
    has_no_barrier(chromium)
    send(chromium, "namespace", namespace)
    chromium.until(f"location.pathname == '/n/{namespace}'")
    chromium.until("document.querySelector('form.viewer') && document.querySelector('main tbody')")
    assert "sums" in chromium.evaluate("document.querySelector('main').textContent")
    chromium.evaluate("document.querySelector('form.viewer').requestSubmit(); 0")
    chromium.until("location.pathname == '/login'")
    chromium.open(f"{address}/n/{namespace}")
    chromium.until("location.pathname == '/login'")
    assert chromium.complaints == []
