"""Pictures of a real demo for the documentation: the terminal, and pages in Chromium.

``RL_PICTURES=write`` puts them into ``docs/images``; else they are looked at by the test alone.
"""

from __future__ import annotations

import base64
import html
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_console.cluster.kube import Cluster
from rl_console.dashboard.app import application
from rl_console.demo.settings import JOB, NAMESPACE, DemoSettings
from rl_console.queries.cluster_source import ClusterSource
from tests.cluster.test_demo import DEMO_SECONDS, run_demo
from tests.network.chromium import Page, browsing
from tests.network.served import served
from tests.servers import ROOT

pytestmark = pytest.mark.timeout(2 * DEMO_SECONDS)
KEY = "pictures"
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 900
COLUMNS = 155
RUN = f"/n/{NAMESPACE}/jobs/{JOB}"
STEPS_SHOWN = 8
"""The last lines of progress, before the answers and the figures."""
SHOWN = {
    "dashboard-run": (RUN, "document.querySelectorAll('.u-legend').length > 4"),
    "dashboard-step": (f"{RUN}/steps/60", "document.querySelector('.card.rollout')"),
}
"""Address, and what is there when the page is complete."""
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; overflow: hidden; background: #0d1117; color: #e6edf3; }}
pre {{ margin: 0; padding: 20px 24px; font: 13px/1.4 "DejaVu Sans Mono", monospace; }}
b {{ color: #56d364; font-weight: normal; }}
</style><pre><b>$</b> kubectl rl demo
{printed}</pre>"""


@pytest.fixture(scope="module")
def printed(alone: None, settings: DemoSettings) -> str:
    """What the demo printed; its run stays in the cluster."""
    return run_demo(settings)


@pytest.fixture(scope="module")
def address(printed: str, settings: DemoSettings, cluster: Cluster) -> Iterator[str]:
    """The dashboard, as ``kubectl rl dashboard`` serves it."""
    source = ClusterSource(cluster, settings.tools)
    with served(application(source, key=KEY, namespace=NAMESPACE)) as port:
        yield f"http://127.0.0.1:{port}"
    source.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("profile")) as page:
        page.look(width=WIDTH, theme="light")
        yield page


def photograph(page: Page, name: str, folder: Path) -> None:
    """Write a PNG of the window, and keep it if that is wanted."""
    shot = page.send("Page.captureScreenshot", format="png")
    file = folder / f"{name}.png"
    file.write_bytes(base64.b64decode(shot["data"]))
    assert file.stat().st_size > 10_000, f"{name} is empty"
    if os.environ.get("RL_PICTURES") == "write":
        shutil.copy(file, IMAGES)


def test_pages_of_the_demo(browser: Page, address: str, tmp_path: Path) -> None:
    browser.open(f"{address}/?key={KEY}")
    for name, (path, complete) in SHOWN.items():
        browser.complaints.clear()
        browser.open(address + path)
        browser.until(complete)
        photograph(browser, name, tmp_path)
        assert browser.complaints == [], name
    browser.open(f"{address}{RUN}/steps/60")
    rollout = browser.evaluate("document.querySelector('a[href*=\"/rollouts/\"]').href")
    browser.open(rollout)
    browser.until("document.querySelector('#tokens *')")
    photograph(browser, "dashboard-rollout", tmp_path)


def test_the_terminal_of_the_demo(browser: Page, printed: str, tmp_path: Path) -> None:
    lines = printed.rstrip().splitlines()
    first = next(at for at, line in enumerate(lines) if "fetching the results" in line)
    last = next(at for at, line in enumerate(lines) if line.startswith("held-out accuracy: "))
    shown = "\n".join(line[:COLUMNS] for line in lines[first - STEPS_SHOWN : last + 1])
    file = tmp_path / "terminal.html"
    file.write_text(TERMINAL.format(printed=html.escape(shown)))
    browser.open(file.as_uri())
    photograph(browser, "demo-terminal", tmp_path)
