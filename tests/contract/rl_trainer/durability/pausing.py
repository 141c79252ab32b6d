"""Trainer processes that stop themselves (SIGSTOP) between two commands, wherever a test wants.

One process imports the trainer and forks one child for each attempt: a real process each, without
the seconds that the imports take. That process is
``python -m tests.contract.rl_trainer.durability.pausing``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rl_contracts.env import TrainerEnv
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects
from tests.contract.rl_trainer.world import PATIENCE_SECONDS, World
from tests.servers import ROOT
from tests.waiting import until

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """Where a trainer stops: at the nth command to a store whose purpose matches."""

    doing: str
    """Regular expression for the whole purpose, numbers in it written as 0."""
    when: str = "before"
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.doing} ({self.nth})"


def normalized(doing: str) -> str:
    """A command's purpose without what differs between attempts."""
    text = re.sub(r"[0-9a-f]{8,}", "0", doing)
    return re.sub(r"\d+", "0", text)


class Trigger:
    """Stops this process at a point, once; notes every command's purpose."""

    def __init__(self, point: Point | None, journal: Path) -> None:
        self._point, self._left = point, point.nth if point else 0
        self._journal = journal.open("a")
        self._lock = threading.Lock()

    def pull(self, doing: str, when: str) -> None:
        with self._lock:
            if when == "before":
                self._journal.write(normalized(doing) + "\n")
                self._journal.flush()
            point = self._point
            if (
                point is None
                or when != point.when
                or not re.fullmatch(point.doing, normalized(doing))
            ):
                return
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)


def _attempt(request: dict[str, Any]) -> None:
    """In the child: one attempt with stores that stop at the point."""
    from rl_trainer import attempt

    folder = Path(request["folder"])
    logging.basicConfig(level=logging.INFO, filename=folder / f"trainer-{os.getpid()}.log")
    point = Point(**request["point"]) if request["point"] else None
    trigger = Trigger(point, Path(request["journal"]))

    class PausingMongo(Mongo):
        def call(self, doing: str, operation: Callable[[], T]) -> T:
            trigger.pull(doing, "before")
            result = super().call(doing, operation)
            trigger.pull(doing, "after")
            return result

    class PausingObjects(Objects):
        def call(self, doing: str, operation: Callable[[], T], *, key: str = "") -> T:
            trigger.pull(doing, "before")
            result = super().call(doing, operation, key=key)
            trigger.pull(doing, "after")
            return result

    def connect(settings: StoreSettings) -> Stores:
        return Stores.of(
            PausingMongo(settings, patience_seconds=PATIENCE_SECONDS),
            PausingObjects(settings, patience_seconds=PATIENCE_SECONDS),
        )

    code = attempt.run(
        TrainerEnv.parse(request["environment"]),
        terminated=threading.Event(),
        connect=connect,
        scratch=folder,
    )
    os._exit(code)


def main() -> None:
    """Fork a trainer for each line of requests; tell of the children that ended."""
    import rl_trainer.attempt  # noqa: F401  # what takes seconds

    ended: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "environment" in request:
            answer: Any = os.fork()
            if answer == 0:
                try:
                    _attempt(request)
                finally:
                    logging.critical("died", exc_info=True)
                    os._exit(99)
        else:
            pid = request["ended"]
            if pid not in ended:
                waited, status = os.waitpid(pid, os.WNOHANG)
                if waited:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(pid)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    os._exit(0)  # at once: torch takes seconds to leave


class Trainers:
    """Starts trainers for tests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, world: World, point: Point | None = None) -> Trainer:
        """One attempt, which stops at ``point``."""
        journal = world.folder / "commands.txt"
        pid = self._ask(
            {
                "environment": world.environment,
                "folder": str(world.folder),
                "journal": str(journal),
                "point": asdict(point) if point else None,
            }
        )
        return Trainer(self, pid)

    def code(self, pid: int) -> int | None:
        """Exit code of a trainer; None while it lives."""
        answer: int | None = self._ask({"ended": pid})
        return answer


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer process."""

    trainers: Trainers
    pid: int

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP holds it."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def await_pause(self) -> bool:
        """True once it is stopped; False when it ended before its point came."""
        state = until(
            lambda: "stopped" if self.stopped else self.ended and "ended",
            what="pause or end of a trainer",
        )
        return state == "stopped"

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self.trainers.code(self.pid) is not None

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def await_end(self) -> int:
        """Its exit code."""
        until(lambda: self.ended, what="end of a trainer")
        code = self.trainers.code(self.pid)
        assert code is not None
        return code

    def kill(self) -> None:
        """End it, stopped or not."""
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            self.await_end()


@contextmanager
def running_trainers() -> Iterator[Trainers]:
    """The process that forks trainers."""
    folders = ["contracts", "trainer_image", "."]
    more = {
        "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in folders),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.contract.rl_trainer.durability.pausing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | more,
    ) as process:
        yield Trainers(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=120) == 0  # it may still be importing


if __name__ == "__main__":
    main()
