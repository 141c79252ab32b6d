"""Turns on devices that the engine of the same pod uses, too (``rl_contracts.turns``).

The trainer drives: it has the devices whenever it computes, and lends them to the engine while it
waits for samples.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from rl_contracts.turns import MAX_LINE_BYTES, SOCKET, Turn, TurnAnswer, TurnRequest
from rl_trainer.context.job import Job
from rl_trainer.distributed.rank_commands import MoveModels
from rl_trainer.errors import TerminatedError, TrainingFailedError
from rl_trainer.model.host_memory import residence
from rl_trainer.model.learner import Learner
from rl_trainer.phases import TURN, Phases

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
ANSWER_SECONDS = 15.0
"""Longer than the agent takes by itself to refuse a turn that did not begin in time."""
STOPPING_SECONDS = 30.0
"""For the devices to come back after SIGTERM, so that a checkpoint can be written."""


class Devices(Protocol):
    """The trainer's devices: its own, or those that it shares with the engine of its pod."""

    @property
    def shared(self) -> bool:
        """Whether the engine uses them, too."""

    def take(self) -> None:
        """Get the devices for the first time, before any model is loaded."""

    def hold(self, learner: Learner, phases: Phases) -> None:
        """Name what leaves the devices in the engine's turns, and what counts their changes."""

    def sampling(self, version: Callable[[], int]) -> contextlib.AbstractContextManager[None]:
        """Context of a wait for samples.

        Args:
            version: oldest policy that samples now; asked only where the devices are shared.
        """


class OwnDevices:
    """Devices that nobody else uses."""

    shared = False

    def take(self) -> None:
        """Do nothing."""

    def hold(self, learner: Learner, phases: Phases) -> None:
        """Do nothing."""

    def sampling(self, version: Callable[[], int]) -> contextlib.AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()


class SharedDevices:
    """Devices that the trainer lends to the engine of its pod while it waits for samples.

    Args:
        job: whose turns.
        folder: with the agent's socket.
    """

    shared = True

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._path = job, folder / SOCKET
        engine = job.spec.samplers[0].template.engine
        self._seconds = float(engine.startup_seconds + job.spec.weight_sync.timeout_seconds)
        self._learner: Learner | None = None
        self._phases = Phases(job.clock)

    def take(self) -> None:
        """Wait until the engine has started and given the devices up.

        Raises:
            TrainingFailedError: it did not in time.
        """
        self._job.heartbeat.say("waiting for the engine to give up the devices")
        self._ask(TurnRequest(turn=Turn.TRAIN, seconds=self._seconds))

    def hold(self, learner: Learner, phases: Phases) -> None:
        """Move this learner, on all ranks, in every turn."""
        self._learner, self._phases = learner, phases

    @contextlib.contextmanager
    def sampling(self, version: Callable[[], int]) -> Iterator[None]:
        """A turn of the engine: it begins once the engine serves the version.

        Raises:
            TrainingFailedError: a turn did not begin in time.
        """
        with self._phases.of(TURN):
            wanted = version()
            self._move(to_device=False)
            self._job.heartbeat.say(f"waiting for the engine to serve policy {wanted}")
            self._ask(TurnRequest(turn=Turn.SAMPLE, version=wanted, seconds=self._seconds))
        try:
            yield
        except TerminatedError:
            self._take_back()
            raise
        with self._phases.of(TURN):
            self.take()
            self._move(to_device=True)

    def _take_back(self) -> None:
        """Get the devices for a last checkpoint; without them it is made of what host memory has.

        A trainer that has to stop must not report a failure of its engine.
        """
        try:
            self._ask(TurnRequest(turn=Turn.TRAIN, seconds=STOPPING_SECONDS), stopping=True)
        except TrainingFailedError as error:
            log.warning("saving without the devices: %s", error)
        else:
            self._move(to_device=True)

    def _move(self, *, to_device: bool) -> None:
        learner = self._learner
        assert learner is not None, "models are loaded before the first turn of the engine"
        self._job.team.call(
            MoveModels(to_device=to_device), lambda: residence.move(learner, to_device=to_device)
        )

    def _ask(self, request: TurnRequest, *, stopping: bool = False) -> None:
        """Have the agent begin a turn; again while it is being restarted."""
        job = self._job
        until = job.clock() + request.seconds + ANSWER_SECONDS
        pause = job.heartbeat.wait if stopping else job.heartbeat.pause
        check = (lambda: None) if stopping else job.heartbeat.check
        why = ""
        while job.clock() < until:
            try:
                answer = self._exchange(request, until=until, check=check)
            except (OSError, ValidationError) as error:
                why = f"The agent does not answer: {error}"
                pause(RETRY_SECONDS)
                continue
            if answer.granted:
                return
            why = answer.message
            break
        raise TrainingFailedError(reason="TurnTimeout", message=f"{why}."[:1000])

    def _exchange(
        self, request: TurnRequest, *, until: float, check: Callable[[], None]
    ) -> TurnAnswer:
        """Send a request, and wait for its answer.

        Raises:
            OSError: the agent does not listen, has ended, or did not answer in time.
            ValidationError: it answered something else.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(POLL_SECONDS)
            connection.connect(str(self._path))
            connection.sendall(request.model_dump_json().encode() + b"\n")
            received = b""
            while not received.endswith(b"\n"):
                check()
                if self._job.clock() > until or len(received) > MAX_LINE_BYTES:
                    raise TimeoutError("no answer in time")
                with contextlib.suppress(TimeoutError):
                    chunk = connection.recv(MAX_LINE_BYTES)
                    if not chunk:
                        raise ConnectionResetError("it has ended")
                    received += chunk
        return TurnAnswer.model_validate_json(received)


def devices_of(job: Job) -> Devices:
    """The devices of a job's trainer."""
    return OwnDevices() if job.turns_folder is None else SharedDevices(job, job.turns_folder)
