"""A trainer that is stopped while the engine of its pod has the devices."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.connect import Stores
from rl_contracts.turns import SOCKET, Turn, TurnAnswer, TurnRequest
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.job import Job
from rl_trainer.context.turns import SharedDevices
from rl_trainer.errors import TerminatedError
from rl_trainer.phases import Phases
from tests.samples.manifests import a_job
from tests.unit.rl_trainer.compared import same, weights
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples


@contextlib.contextmanager
def agent(folder: Path, *, gives: bool) -> Iterator[list[Turn]]:
    """An agent that gives the devices to the trainer, or not; the turns that it was asked for."""
    asked: list[Turn] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = TurnRequest.model_validate_json(self.rfile.readline())
            asked.append(request.turn)
            granted = gives or request.turn is Turn.SAMPLE
            answer = TurnAnswer(granted=granted, message="the engine is not up")
            self.wfile.write(answer.model_dump_json().encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(folder / SOCKET), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("gives", [True, False])
def test_a_stop_in_the_engines_turn_is_no_failure_and_leaves_the_weights_to_be_saved(
    gives: bool, tmp_path: Path, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    terminated = threading.Event()
    spec = cast("dict[str, Any]", a_job()["spec"]) | {"placement": "Colocated"}
    stores = cast("Stores", None)  # neither the turns nor a heartbeat without its thread asks them
    job = Job(
        name="j",
        run="r",
        epoch=1,
        spec=RLJobSpec.model_validate(spec),
        stores=stores,
        heartbeat=Heartbeat(stores, run="r", epoch=1, terminated=terminated),
        folder=tmp_path,
    )
    learner, kept = make_learner(), make_learner()
    for each in (learner, kept):
        each.update(make_samples(), step=1)
    devices = SharedDevices(job, tmp_path)
    devices.hold(learner, Phases(job.clock))

    def stopped() -> None:
        with devices.sampling(lambda: 1):
            terminated.set()
            job.heartbeat.check()

    with agent(tmp_path, gives=gives) as asked, pytest.raises(TerminatedError):
        stopped()
    assert asked == [Turn.SAMPLE, Turn.TRAIN]
    assert same(weights(learner), weights(kept))
