"""Runs on shared devices that learn, and that lose engine, agent and trainer in their turns."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.turns import Turn
from tests.contract.turns.pod import TurnsPod, turns_pod
from tests.waiting import HUNG_SECONDS, throughout, until

LONG_SECONDS = 4 * HUNG_SECONDS
GATE_SECONDS = 5.0
"""A new engine that waits shows nothing else."""
LEARNING: dict[str, Any] = {"steps": 60, "promptsPerStep": 8, "optimizer": {"learningRate": 1e-2}}


def at_step(pod: TurnsPod, step: int) -> None:
    """Wait until the run has committed so many steps."""
    until(pod.world.at_step(step), what=f"step {step}", seconds=LONG_SECONDS, seen=pod.logs)


def mean_reward(pod: TurnsPod, steps: slice) -> float:
    """Of all rollouts that these steps trained."""
    rewards = [each.reward for step in pod.world.trained()[steps] for each in step]
    return sum(rewards) / len(rewards)


def test_a_run_by_turns_learns_and_its_lineage_is_exact(
    tmp_path: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    with turns_pod(tmp_path, stores, store_settings, **LEARNING) as pod:
        pod.wait_trained(pod.train(), seconds=LONG_SECONDS)
    pod.world.check_lineage()
    assert mean_reward(pod, slice(-10, None)) > mean_reward(pod, slice(10)) + 0.3


def test_a_run_outlives_its_engine_its_agent_and_its_trainer(
    tmp_path: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    """Each is killed while the other one has the devices, and while it has them itself."""
    with turns_pod(tmp_path, stores, store_settings, steps=12, promptsPerStep=4) as pod:
        trainer = pod.train()
        at_step(pod, 2)
        pod.kill_engine()
        at_step(pod, 4)
        assert pod.agent is not None
        pod.agent.send_signal(signal.SIGKILL)
        at_step(pod, 6)
        trainer.kill()
        trainer.wait(timeout=HUNG_SECONDS)
        pod.wait_trained(pod.train(), seconds=LONG_SECONDS)
        assert pod.turn() == Turn.TRAIN
    pod.world.check_lineage()
    assert pod.world.run.trainers == 2


def test_an_engine_that_ends_in_the_trainers_turn_waits_at_the_gate(
    tmp_path: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    with turns_pod(tmp_path, stores, store_settings, steps=6, promptsPerStep=4) as pod:
        trainer = pod.train()
        at_step(pod, 2)
        stopping = Stopping(pod, trainer)
        until(stopping.look, what="a turn of the trainer to stop in", interval=1.0)
        before = pod.engine
        pod.kill_engine()
        until(
            lambda: pod.engine not in (None, before),
            what="the engine's container to be restarted",
        )
        throughout(lambda: "it listens" if pod.engine_listens else "", seconds=GATE_SECONDS)
        assert not pod.gate_is_open
        trainer.send_signal(signal.SIGCONT)
        pod.wait_trained(trainer, seconds=LONG_SECONDS)
    pod.world.check_lineage()


@dataclass
class Stopping:
    """Stops a trainer that has the devices and asks for no other turn."""

    pod: TurnsPod
    trainer: subprocess.Popen[bytes]
    stopped: bool = False

    def look(self) -> bool:
        """Stop it; at the next look it is still its turn, or it goes on."""
        if self.stopped and self.pod.turn() == Turn.TRAIN:
            return True
        self.stopped = not self.stopped
        self.trainer.send_signal(signal.SIGSTOP if self.stopped else signal.SIGCONT)
        return False


def test_a_trainer_that_is_stopped_in_the_engines_turn_takes_the_devices_and_saves(
    tmp_path: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    checkpoint = {"everySteps": 1000}
    with turns_pod(
        tmp_path, stores, store_settings, steps=40, promptsPerStep=4, checkpoint=checkpoint
    ) as pod:
        trainer = pod.train()
        at_step(pod, 3)
        until(lambda: pod.turn() == Turn.SAMPLE, what="a turn of the engine", interval=0.001)
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(timeout=HUNG_SECONDS) == 143
        assert pod.turn() == Turn.TRAIN
    run = pod.world.run
    assert run.durable is not None
    assert run.durable.step == run.step
