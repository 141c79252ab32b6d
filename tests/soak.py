"""The soak in shards: ``python -m tests.soak --shard operator-cluster --seed 7 --minutes 20``.

A shard is a part of the long tests that can be run alone; without ``--shard`` all run in turn. The
seed orders the files of a shard and chooses the examples that properties are tried with, so that
the same seed repeats a run. When the time is over, the test that runs is finished, and the tests
that did not run are listed; that is no failure. The next seed begins with other files.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
GO_STORE = TESTS.parent / "local/go/store"
DAY_SECONDS = 86_400
OVER = "the soak's time is over"


@dataclass(frozen=True)
class Shard:
    """A part of the soak."""

    about: str
    paths: tuple[str, ...] = ()
    """Folders of tests below ``tests``."""
    cluster: bool = False
    """Whether it needs the local cluster and its images."""
    marked: bool = False
    """Whether only the tests with the mark ``soak`` run, since a test tier has the others."""

    @property
    def choice(self) -> tuple[str, ...]:
        """Which of its tests: options of pytest."""
        return ("-m", "soak") if self.marked else ()


SHARDS = {
    "properties": Shard("every property, with 20 times as many examples", ("unit",)),
    "contract": Shard(
        "tests on real servers that are too long for each change", ("contract",), marked=True
    ),
    "stores": Shard("tasks and batches under planted faults and kills", ("chaos/rl_contracts",)),
    "policies": Shard("broadcast of many policies", ("chaos/policy_broadcast",)),
    "trainer": Shard("kills and outages in every phase of a trainer", ("chaos/rl_trainer",)),
    "meshes": Shard("trainers on every mesh of processes", ("chaos/rl_trainer_meshes",)),
    "turns": Shard("an engine and a trainer on the same devices", ("chaos/turns",)),
    "sampler": Shard("engines and agents that end, stop and stall", ("chaos/rl_sampler",)),
    "operator": Shard("storms of objects and a restored API server", ("chaos/rl_operator",)),
    "console": Shard("the dashboard in a browser", ("chaos/rl_console",)),
    "operator-cluster": Shard(
        "edits, ends, suspensions and evictions on the cluster",
        ("chaos/operator_cluster",),
        cluster=True,
    ),
    "runs-cluster": Shard(
        "runs side by side, shared pools, queues",
        ("chaos/rl_operator_cluster", "chaos/scheduling"),
        cluster=True,
    ),
    "examples-cluster": Shard(
        "all examples and objectives, with outages",
        ("chaos/examples", "chaos/objectives"),
        cluster=True,
    ),
    "pictures": Shard(
        "pictures of a demo for the documentation; RL_PICTURES=write keeps them",
        ("chaos/pictures",),
        cluster=True,
    ),
    "local-cluster": Shard(
        "the local cluster itself, which is replaced", ("chaos/rl_local",), cluster=True
    ),
    "store-server": Shard("the embedded document store's own tests, in Go"),
}
"""By name, in the order in which the whole soak runs them."""


@dataclass(eq=False)  # pytest puts plugins into sets where folders have a conftest of their own
class Budget:
    """A pytest plugin: orders files by the seed, and stops after the test at which time is over."""

    seed: int
    deadline: float | None
    """On ``clock``; None: there is none."""
    clock: Callable[[], float] = time.monotonic
    session: pytest.Session | None = None
    waiting: list[str] = field(default_factory=list)
    """Ids of the tests that have not run."""

    @property
    def failed(self) -> bool:
        """Whether a test failed."""
        return self.session is None or self.session.testsfailed > 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember what is to be stopped."""
        self.session = session

    @pytest.hookimpl(trylast=True)  # after those that do not belong to the shard are left out
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Shuffle the files; tests of a file stay in order, since they share fixtures."""
        files = list(dict.fromkeys(item.path for item in items))
        random.Random(self.seed).shuffle(files)
        places = {path: place for place, path in enumerate(files)}
        items.sort(key=lambda item: places[item.path])
        self.waiting = [item.nodeid for item in items]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Stop if the time is over and tests are left."""
        self.waiting.remove(nodeid)
        if self.session and self.waiting and self.deadline and self.clock() >= self.deadline:
            self.session.shouldstop = OVER

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what did not run."""
        if self.waiting:
            terminalreporter.section(f"{len(self.waiting)} tests did not run")
            for name in self.waiting:
                terminalreporter.line(name)


def run(shard: Shard, *, seed: int, deadline: float | None) -> bool:
    """Run a shard; False if a test failed or could not be collected."""
    if not shard.paths:
        command = ["go", "test", "-tags", "ferretdb_no_postgresql", "./..."]
        return subprocess.run(command, cwd=GO_STORE, check=False).returncode == 0
    budget = Budget(seed=seed, deadline=deadline)
    status = pytest.main(
        [
            *(str(TESTS / path) for path in shard.paths),
            "-v",
            "--durations=0",
            *shard.choice,
            "--hypothesis-profile=explore",
            f"--hypothesis-seed={seed}",
        ],
        plugins=[budget],
    )
    over = budget.session is not None and budget.session.shouldstop == OVER
    return status == pytest.ExitCode.OK or (over and not budget.failed)


def run_all(*, seed: int, minutes: float | None) -> list[str]:
    """Run every shard, each in a process of its own; names of those that failed."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    failed = []
    for name in SHARDS:
        left = None if deadline is None else (deadline - time.monotonic()) / 60
        if left is not None and left <= 0:
            _say(f"soak: shard {name} did not run: no time was left")
            continue
        command = [sys.executable, "-m", "tests.soak", "--shard", name, "--seed", str(seed)]
        limit = [] if left is None else ["--minutes", str(left)]
        if subprocess.run([*command, *limit], cwd=TESTS.parent, check=False).returncode:
            failed.append(name)
    return failed


def listing() -> str:
    """The shards, one a line."""
    lines = [
        f"{name:18}{'cluster' if shard.cluster else '':9}{shard.about}"
        for name, shard in SHARDS.items()
    ]
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one shard, or all of them; 1 if a test failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="show the shards")
    parser.add_argument("--shard", choices=SHARDS, help="default: all of them")
    parser.add_argument("--seed", type=int, default=None, help="default: that of the day")
    parser.add_argument("--minutes", type=float, default=None, help="default: no limit")
    given = parser.parse_args(arguments)
    if given.list:
        _say(listing())
        return 0
    seed = int(time.time() // DAY_SECONDS) if given.seed is None else given.seed
    _say(f"soak: seed {seed}")
    if given.shard is None:
        failed = run_all(seed=seed, minutes=given.minutes)
        _say(f"soak: seed {seed}, failed: {', '.join(failed) or 'none'}")
        return int(bool(failed))
    deadline = None if given.minutes is None else time.monotonic() + 60 * given.minutes
    return int(not run(SHARDS[given.shard], seed=seed, deadline=deadline))


if __name__ == "__main__":
    sys.exit(main())
