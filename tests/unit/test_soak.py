"""The soak's shards and its time budget."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import conftest
from tests.soak import OVER, SHARDS, TESTS, Budget, listing, main


def items(*names: str) -> list[Any]:
    """Tests, e.g. ``b.py::one``."""
    return [SimpleNamespace(nodeid=name, path=Path(name.partition("::")[0])) for name in names]


def test_every_folder_of_long_tests_is_in_one_shard() -> None:
    folders = {
        f"chaos/{path.name}" for path in (TESTS / "chaos").iterdir() if any(path.glob("test_*.py"))
    }
    listed = [path for shard in SHARDS.values() for path in shard.paths]
    assert sorted(listed) == sorted(folders | {"unit", "contract"})


@pytest.mark.parametrize(
    ("arguments", "expression", "left_out"),
    [
        (["tests/contract"], "", ["long"]),
        (["tests/contract"], "soak", []),  # pytest itself chooses by the mark
        (["tests/contract/test_a.py::long"], "", []),
    ],
    ids=["a tier", "the soak", "by name"],
)
def test_tests_of_the_soak_are_left_out_elsewhere_unless_named(
    arguments: list[str], expression: str, left_out: list[str]
) -> None:
    both = [
        SimpleNamespace(name=name, get_closest_marker=lambda mark, name=name: name == "long")
        for name in ("short", "long")
    ]
    gone: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
    options = SimpleNamespace(markexpr=expression)
    config: Any = SimpleNamespace(option=options, args=arguments, hook=hook)
    collected: list[Any] = list(both)
    conftest.pytest_collection_modifyitems(config, collected)
    assert [item.name for item in gone] == left_out
    assert [item for item in both if item not in gone] == collected


def test_the_shard_of_a_tier_has_the_marked_tests_alone() -> None:
    file = "tests/contract/rl_sampler/tools/test_sandbox.py"
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", file, *SHARDS["contract"].choice],
        capture_output=True,
        text=True,
        check=True,
        cwd=TESTS.parent,
    ).stdout
    assert "processor_time[before4]" in collected
    assert "processor_time[]" not in collected


def test_seed_orders_files_and_keeps_the_order_within_a_file() -> None:
    names = [f"{file}.py::{test}" for file in "abcdefgh" for test in ("one", "two")]
    orders = []
    for seed in (7, 7, 8):
        budget, ordered = Budget(seed=seed, deadline=None), items(*names)
        budget.pytest_collection_modifyitems(ordered)
        orders.append([item.nodeid for item in ordered])
        assert budget.waiting == orders[-1]
    assert orders[0] == orders[1] != orders[2]
    for order in orders:
        assert sorted(order) == names
        assert [name[:4] for name in order[::2]] == [name[:4] for name in order[1::2]]
        assert [name[6:] for name in order] == ["one", "two"] * 8


def test_budget_stops_after_the_test_at_which_time_is_over() -> None:
    now = 0.0
    session = cast("pytest.Session", SimpleNamespace(shouldstop=False, testsfailed=0))
    budget = Budget(seed=1, deadline=10.0, clock=lambda: now)
    budget.pytest_sessionstart(session)
    budget.pytest_collection_modifyitems(items("a.py::one", "a.py::two", "a.py::three"))
    budget.pytest_runtest_logfinish("a.py::one")
    assert not session.shouldstop
    now = 11.0
    budget.pytest_runtest_logfinish("a.py::two")
    assert session.shouldstop == OVER
    assert budget.waiting == ["a.py::three"]


def test_budget_that_ends_with_the_last_test_stops_nothing() -> None:
    session = cast("pytest.Session", SimpleNamespace(shouldstop=False, testsfailed=0))
    budget = Budget(seed=1, deadline=10.0, clock=lambda: 11.0)
    budget.pytest_sessionstart(session)
    budget.pytest_collection_modifyitems(items("a.py::one"))
    budget.pytest_runtest_logfinish("a.py::one")
    assert not session.shouldstop


def test_make_builds_images_for_the_shards_that_need_the_cluster() -> None:
    (line,) = re.findall(
        r"^CLUSTERLESS := (.*)$", (TESTS.parent / "Makefile").read_text(), re.MULTILINE
    )
    assert line.split() == [name for name, shard in SHARDS.items() if not shard.cluster]


def test_list_names_every_shard(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.strip() == listing()
    assert [line.split()[0] for line in listing().splitlines()] == list(SHARDS)


@pytest.mark.parametrize(("body", "passed"), [("pass", True), ("assert False", False)])
def test_shard_without_time_left_runs_one_test_and_names_the_others(
    tmp_path: Path, body: str, passed: bool
) -> None:
    for folder in ("one", "two"):  # each with a conftest of its own, as the tests have them
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "conftest.py").touch()
        (tmp_path / folder / f"test_{folder}.py").write_text(
            f"def test_first():\n    {body}\ndef test_second():\n    {body}\n"
        )
    program = (
        "import sys, tests.conftest; from tests.soak import Shard, run; "
        "sys.exit(not run(Shard('x', (sys.argv[1],)), seed=1, deadline=0.001))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
    )
    assert (done.returncode == 0) == passed, done.stdout + done.stderr
    assert "3 tests did not run" in done.stdout
    assert done.stdout.partition("did not run")[2].count("::test_second") == 2
