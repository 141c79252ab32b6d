"""The workflow that runs the demo on kind does what the page for people says."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOW = ROOT / ".github" / "workflows" / "demo.yml"
PAGE = ROOT / "docs" / "getting-started" / "quickstart.md"


def test_the_demo_on_kind_is_run_by_the_commands_of_its_page() -> None:
    section = PAGE.read_text().split("## No GPU and no cluster: kind")[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["kind"]["steps"]
    run = "\n".join(step.get("run", "").rstrip() for step in steps)
    wanted = block[1].strip().splitlines()
    given = iter(run.splitlines())
    assert len(wanted) >= 5
    assert all(line in given for line in wanted), "they are not all there in this order"
