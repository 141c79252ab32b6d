"""The dashboard as a person starts it, walked in Chromium."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rl_console.tools import Tools
from tests.chaos.rl_console.walk import THEMES, check_page
from tests.cluster.lab import command_line
from tests.cluster.waiting import until
from tests.network.chromium import Page, browsing
from tests.waiting import HUNG_SECONDS

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*")
CHARTS = "document.querySelector('.u-legend')"


@contextmanager
def served(tools: Tools, namespace: str, log: Path) -> Iterator[str]:
    """``kubectl rl dashboard`` until the block ends; the address that it printed, with its key."""
    command = command_line(tools, "-n", namespace, "dashboard")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(
            lambda: ADDRESS.search(log.read_text()),
            what="the dashboard's address",
            seen=log.read_text,
        )
        match = ADDRESS.search(log.read_text())
        assert match
        yield match.group()
    finally:
        process.terminate()
        process.wait(timeout=HUNG_SECONDS)


def pages(page: Page, address: str, run: str, step: int) -> dict[str, str]:
    """Paths of all pages about a run, by name; those of a step and of its first rollout."""
    path = f"{run}/steps/{step}"
    page.open(f"{address}{path}")
    page.until("document.querySelector('a[href*=\"/rollouts/\"]')")
    rollout = page.evaluate("document.querySelector('a[href*=\"/rollouts/\"]').href")
    parts = urlsplit(rollout)
    _, _, namespace, _, job = run.split("/")
    return {
        "runs": "/",
        "run": run,
        "step": path,
        "rollout": f"{parts.path}?{parts.query}",
        "prompts": f"{run}/prompts",
        "search": f"{run}/search?text=answer",
        "policies": f"{run}/policies",
        "pools": f"{run}/pools",
        "timeline": f"{run}/timeline",
        "compare": f"/compare?run={namespace}/{job}",
    }


def walk(tools: Tools, namespace: str, job: str, step: int, folder: Path) -> None:
    """Every page about a run and about a step of it, in each theme and width."""
    folder.mkdir(exist_ok=True)
    with (
        served(tools, namespace, folder / "dashboard.log") as printed,
        browsing(folder / "profile") as page,
    ):
        page.open(printed)
        parts = urlsplit(printed)
        address = f"{parts.scheme}://{parts.netloc}"
        for name, path in pages(page, address, f"/n/{namespace}/jobs/{job}", step).items():

            def visit(path: str = path, charts: bool = name in ("run", "compare")) -> None:
                page.open(address + path)
                if charts:
                    page.until(CHARTS)

            for theme in THEMES:
                check_page(page, name, theme, folder, visit)
