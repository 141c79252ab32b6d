"""Viewers with `get` and `list` on jobs and pools alone see a run, on a real cluster.

| way | through |
|---|---|
| a notebook | the API server's proxy to the operator's Service, then the namespace's reader |
| the chart's dashboard, in Chromium's place | a port-forward to its Service, then the same |
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from rl_console import tools
from rl_console.client import NotAllowedError, RLJob, connect
from rl_console.cluster.portforward import port_forward
from rl_console.dashboard.gate import SESSION
from rl_console.demo.settings import RELEASE, RELEASE_NAMESPACE, DemoSettings
from tests.chaos.operator_cluster.jobs import COMPLETE_SECONDS, await_phase, taught_job
from tests.cluster.lab import Lab
from tests.cluster.waiting import until
from tests.contract.rl_operator.viewing import viewer_objects
from tests.waiting import HUNG_SECONDS

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
JOB = "viewed"
VIEWER, STRANGER = "run-viewer", "run-stranger"
ELSEWHERE = "rl-elsewhere"
DASHBOARD = "rl-operator-dashboard"


def token(lab: Lab, namespace: str, name: str) -> str:
    """The token of a new service account that may view runs of the namespace."""
    objects = {"apiVersion": "v1", "kind": "List", "items": viewer_objects(namespace, name)}
    lab.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(objects))
    return lab.kubectl("create", "token", name, "-n", namespace).strip()


def kubeconfig(lab: Lab, folder: Path, shown: str) -> Path:
    """The administrator's kubeconfig with a viewer's token in place of the user."""
    written = json.loads(lab.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    for user in written["users"]:
        user["user"] = {"token": shown}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(written))
    return path


def set_dashboard(settings: DemoSettings, *, enabled: bool) -> None:
    """As an administrator does."""
    chart = str(settings.checkout / "charts" / RELEASE)
    value = f"dashboard.enabled={str(enabled).lower()}"
    release = ("upgrade", RELEASE, chart, "--namespace", RELEASE_NAMESPACE)
    command = settings.tools.helm_command(*release, "--reuse-values", "--set", value, "--wait")
    tools.run(command, seconds=COMPLETE_SECONDS, doing=f"helm upgrade with {value}")


@pytest.fixture(scope="module")
def run(lab: Lab) -> Iterator[RLJob]:
    """A run that has ended, as the administrator sees it."""
    lab.apply(taught_job(JOB))
    await_phase(lab, JOB, "Succeeded")
    yield RLJob(JOB, namespace=lab.namespace, connection=connect(lab.tools.kubeconfig))
    lab.delete("rljob", JOB)


@pytest.fixture(scope="module")
def viewer(lab: Lab) -> str:
    return token(lab, lab.namespace, VIEWER)


@pytest.fixture(scope="module")
def stranger(lab: Lab) -> Iterator[str]:
    lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}})
    yield token(lab, ELSEWHERE, STRANGER)
    lab.delete("namespace", ELSEWHERE)


def test_a_notebook_reads_a_run_through_the_api_server(
    lab: Lab, run: RLJob, viewer: str, stranger: str, tmp_path: Path
) -> None:
    mine = connect(kubeconfig(lab, tmp_path, viewer), namespace=lab.namespace)
    steps = run.status().progress.steps
    metrics = RLJob(JOB, connection=mine).metrics(["loss"])
    assert [row.step for row in metrics] == list(range(1, steps + 1))
    assert all(row["loss"] is not None for row in metrics)
    with pytest.raises(NotAllowedError):
        mine.cluster.secret(lab.namespace, "rl-operator-stores")
    theirs = connect(kubeconfig(lab, tmp_path, stranger), namespace=lab.namespace)
    for ask in (RLJob(JOB, connection=theirs).status, RLJob(JOB, connection=theirs).metrics):
        with pytest.raises(NotAllowedError):
            ask()


def test_the_charts_dashboard_shows_a_run_to_its_viewers_alone(
    lab: Lab, installed: DemoSettings, run: RLJob, viewer: str, stranger: str
) -> None:
    set_dashboard(installed, enabled=True)
    try:
        with port_forward(
            lab.tools, namespace=RELEASE_NAMESPACE, target=f"service/{DASHBOARD}", port=80
        ) as port:
            browser = Browser(port)
            page = f"/n/{lab.namespace}/jobs/{JOB}"
            assert browser.get(page, "") == (303, "")
            mine, theirs = browser.log_in(viewer), browser.log_in(stranger)
            status, shown = browser.get(page, mine)
            assert (status, f"<h1>{JOB}" in re.sub(r"\s", "", shown)) == (200, True), shown
            status, metrics = browser.get(f"{page}/metrics.json?columns=loss", mine)
            assert (status, len(json.loads(metrics)["steps"])) == (200, run.status().progress.steps)
            for address in (page, f"{page}/metrics.json", f"/n/{lab.namespace}"):
                status, shown = browser.get(address, theirs)
                assert status == 403, shown
            pods = lab.cluster.pods(RELEASE_NAMESPACE, "app.kubernetes.io/component=dashboard")
            assert [pod.ready for pod in pods] == [True]
    finally:
        set_dashboard(installed, enabled=False)
    until(
        lambda: not lab.cluster.pods(RELEASE_NAMESPACE, "app.kubernetes.io/component=dashboard"),
        what="the dashboard to be gone",
    )


class Browser:
    """Asks the dashboard behind a forwarded port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def log_in(self, shown: str) -> str:
        """The cookie that a token becomes."""
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://127.0.0.1:{self._port}",
        }
        connection = self._connect()
        connection.request("POST", "/login", urlencode({"token": shown}), headers)
        answer = connection.getresponse()
        assert answer.status == 303, answer.read()
        cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]
        connection.close()
        assert cookie.startswith(SESSION)
        return cookie

    def get(self, path: str, cookie: str) -> tuple[int, str]:
        connection = self._connect()
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        shown = answer.status, answer.read().decode()
        connection.close()
        return shown

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=HUNG_SECONDS)
