"""What targets of the Makefile run, as `make --dry-run` prints it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLISH = 'rl_local.publish --registry "ghcr.io/you/rl"'
LOCAL = "rl_local up --all-images"


def outside_make() -> dict[str, str]:
    """The environment without what a make that runs the tests leaves in it."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }


def dry_run(*arguments: str, registry: str = "") -> str:
    """The command lines of targets, with REGISTRY in the environment if it is given."""
    return subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env=outside_make() | ({"REGISTRY": registry} if registry else {}),
    ).stdout


@pytest.mark.parametrize(
    ("goal", "built"),
    [
        pytest.param(["images"], PUBLISH, id="images"),
        pytest.param(["demo", "CONTEXT=theirs"], PUBLISH, id="demo on a cluster of yours"),
        pytest.param(["demo"], LOCAL, id="demo"),
        pytest.param(["cluster"], LOCAL, id="tests"),
    ],
)
def test_a_registry_in_the_environment_is_for_those_who_ask_to_publish(
    goal: list[str], built: str
) -> None:
    printed = dry_run(*goal, registry="ghcr.io/you/rl")
    assert [place for place in (PUBLISH, LOCAL) if place in printed] == [built]


def test_without_a_registry_images_are_for_the_local_cluster() -> None:
    assert LOCAL in dry_run("images")
    assert PUBLISH in dry_run("images", "REGISTRY=ghcr.io/you/rl")


def test_a_path_with_a_space_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "my projects"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    done = subprocess.run(
        ["make", "help"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env=outside_make(),
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"has a space, which make cannot handle: {folder}; move it" in line
