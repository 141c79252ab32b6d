"""What holds for every page of the dashboard, on each width of a screen and in each theme."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.network.chromium import Page

WIDTHS, THEMES = (1440, 768, 390), ("light", "dark")
AXE = (Path(__file__).parent / "axe.min.js").read_text()


def check_page(page: Page, name: str, theme: str, folder: Path, visit: Callable[[], None]) -> None:
    """It fits each width, axe finds no barrier, and the console stays empty.

    Args:
        page: the browser's tab.
        name: of the page, for its screenshots.
        theme: ``light`` or ``dark``.
        folder: for screenshots.
        visit: open the page, to its end.
    """
    for width in WIDTHS:
        page.look(width=width, theme=theme)
        page.complaints.clear()
        visit()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        page.screenshot(folder / f"{name}-{width}-{theme}.png")
    page.evaluate(f"{AXE}; 0")
    violations = page.evaluate(
        "axe.run().then(each => each.violations.map(one => [one.id, one.nodes.length,"
        " one.nodes[0].html.slice(0, 200), one.nodes[0].failureSummary]))"
    )
    assert violations == [], json.dumps(violations, indent=1)
    assert page.complaints == [], name
