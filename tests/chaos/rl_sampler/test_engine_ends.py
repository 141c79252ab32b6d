"""What ends the engine or marks it unwell: that the dangers are real, and that the agent copes."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from rl_contracts.documents.task import TaskState
from tests.contract.rl_sampler.engine_server import EngineServer, get
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.waiting import HUNG_SECONDS, until

LONG = {"sampling": {"maxTokensPerTurn": 300, "maxContextTokens": 1000}}
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}
SHAPED = tensors(1) | {"model.norm.weight": np.ones(3, dtype=np.float32)}
WHOLE = save(tensors(1), metadata={"format": "pt"})


def post(engine: EngineServer, path: str, **body: Any) -> None:
    request = urllib.request.Request(
        engine.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=HUNG_SECONDS):
        pass


def scheduler_of(engine: EngineServer) -> int:
    """The process that holds the weights."""
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in engine.pids()}
    (scheduler,) = (pid for pid, name in names.items() if b"sglang::scheduler" in name)
    return scheduler


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "data", [WHOLE[:-1000], save(SHAPED, metadata={"format": "pt"})], ids=["truncated", "misshapen"]
)
def test_unverified_file_kills_the_engine(
    engine_server: EngineServer, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    assert engine_server.process is not None
    post(engine_server, "/pause_generation", mode="retract")
    body = {"model_path": str(tmp_path), "load_format": "safetensors", "weight_version": "x"}
    with pytest.raises((OSError, HTTPException)):
        post(engine_server, "/update_weights_from_disk", **body)
    engine_server.process.wait(timeout=HUNG_SECONDS)
    engine_server.start()
    engine_server.wait_ready()


@pytest.mark.timeout(900)
def test_engine_killed_during_an_update_serves_the_new_policy_afterwards(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(agent=LONG, algorithm=ANY_AGE)
    pod.serve_first_of(trainer)
    tasks = trainer.insert(12, group_size=8)
    until(lambda: TaskState.DONE in trainer.states(tasks).values(), what="a group")
    log = engine_server.folder / "engine.log"
    updates = log.read_text().count("Start update_weights")
    os.kill(scheduler_of(engine_server), signal.SIGSTOP)
    trainer.advance()
    trainer.publish(seed=2)
    until(lambda: log.read_text().count("Start update_weights") > updates, what="the update")
    engine_server.kill()
    until(lambda: pod.get("/ready")[0] == 503, what="the agent to notice")
    engine_server.start()
    engine_server.wait_ready()
    until(lambda: trainer.all_done(tasks), what="all groups")
    assert engine_server.weight_version() == "2"
    pod.wait_version(2)
    assert pod.get("/engine-live")[0] == 200, "the new engine is innocent"
    versions = {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans}
    assert versions == {1, 2}


@pytest.mark.timeout(900)
def test_health_probe_during_a_pause_marks_the_engine_unhealthy_until_the_agents_check(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(algorithm=ANY_AGE)
    assert pod.stage().returncode == 0
    trainer.publish(seed=1)
    post(engine_server, "/pause_generation", mode="retract")
    request = urllib.request.Request(engine_server.url + "/health")
    with pytest.raises(OSError, match="503"):
        urllib.request.urlopen(request, timeout=HUNG_SECONDS)
    post(engine_server, "/continue_generation")
    assert get(f"{engine_server.url}/ping")[0] == 503, "it stays so"
    pod.serve()
    pod.wait_version(1)
    assert get(f"{engine_server.url}/ping")[0] == 200


def absent(engine: EngineServer) -> None:
    engine.kill()


def hung(engine: EngineServer) -> None:
    os.kill(scheduler_of(engine), signal.SIGSTOP)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("state", "published"),
    [(absent, True), (None, False), (hung, True)],
    ids=["engine-starting", "nothing-published", "loading"],
)
def test_agent_drains_in_every_state(
    trainer: ScriptedTrainer,
    make_pod: MakePod,
    engine_server: EngineServer,
    state: Callable[[EngineServer], None] | None,
    published: bool,
) -> None:
    pod = make_pod(agent=LONG, algorithm=ANY_AGE)
    pod.environment["RL_DRAIN_SECONDS"] = "2"
    assert pod.stage().returncode == 0
    if state is not None:
        state(engine_server)
    if published:
        trainer.publish(seed=2)
    pod.serve()
    pod.wait_document(lambda document: True, what="the registration")
    policies = pod.folder / "weights" / "policies"
    if state is hung:
        until(lambda: list(policies.glob("00000001-*-abcd")), what="the version on the disk")
    try:
        assert pod.signal(signal.SIGTERM) == 0
    finally:
        if state is not None:
            if state is hung:
                engine_server.kill()
            engine_server.start()
            engine_server.wait_ready()
    left = pod.document()
    assert left is not None
    assert left.drained
