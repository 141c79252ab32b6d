"""What an agent makes of the note about turns that an earlier process left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from rl_contracts.turns import GATE, SOCKET, Turn, TurnAnswer, TurnRequest
from rl_sampler.engine.client import Engine, PingResult, open_session
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.turn_server import serving_turns
from rl_sampler.engine.turns import CHANGING, NOTE, TurnError, Turns, open_gate
from tests.servers import free_port


class Agent:
    """The parts of an agent that turns change; its engine does not run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.serving, self.problems = Serving(), Problems()
        self.health = EngineHealth(startup_seconds=60, now=time.monotonic())
        self.session = open_session()
        engine = Engine(f"http://127.0.0.1:{free_port()}", session=self.session)
        self.turns = Turns(
            folder,
            engine=engine,
            health=self.health,
            serving=self.serving,
            problems=self.problems,
        )

    @property
    def restart_reason(self) -> str:
        """Why the kubelet is to restart the engine; empty: it is not."""
        return self.health.restart_reason(now=time.monotonic() + 3600)


async def test_a_new_pod_begins_with_the_engines_turn(tmp_path: Path) -> None:
    open_gate(tmp_path)
    agent = Agent(tmp_path)
    assert agent.serving.turn is Turn.SAMPLE
    assert not agent.serving.updating
    assert (tmp_path / GATE).exists()
    await agent.session.close()


async def test_an_engine_behind_the_gate_is_not_late(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(Turn.TRAIN)
    agent = Agent(tmp_path)
    assert agent.serving.turn is Turn.TRAIN
    assert agent.serving.updating, "requests would be sent to an engine without memory"
    agent.health.observe(PingResult.NOT_LISTENING, now=0.0)
    assert agent.restart_reason == ""
    agent.health.let_start(now=time.monotonic())
    assert "has not been listening" in agent.restart_reason
    await agent.session.close()


async def test_a_change_that_was_not_completed_has_the_engine_restarted(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(CHANGING)
    agent = Agent(tmp_path)
    assert "changed hands" in agent.restart_reason
    assert (tmp_path / GATE).exists()
    agent.health.observe(PingResult.NOT_LISTENING, now=time.monotonic() + 3600)
    assert "changed hands" not in agent.restart_reason, "the process that had to end is gone"
    await agent.session.close()


@pytest.mark.parametrize("turn", list(Turn))
async def test_a_turn_that_does_not_begin_says_what_the_engine_does(
    turn: Turn, tmp_path: Path
) -> None:
    open_gate(tmp_path)
    agent = Agent(tmp_path)
    agent.problems.note("engine", "does not answer (absent)")
    with pytest.raises(TurnError, match=f"turn {turn}.*not up.*no policy.*does not answer"):
        await agent.turns.take(TurnRequest(turn=turn, version=3, seconds=0.05))
    await agent.session.close()


async def test_the_engines_turn_opens_the_gate_at_once(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text(Turn.TRAIN)
    agent = Agent(tmp_path)
    with pytest.raises(TurnError, match="of version 3"):
        await agent.turns.take(TurnRequest(turn=Turn.SAMPLE, version=3, seconds=0.05))
    assert (tmp_path / GATE).exists()
    assert (tmp_path / NOTE).read_text() == Turn.SAMPLE
    assert agent.serving.wanted == 3
    await agent.session.close()


@pytest.mark.parametrize("asked", [b"{}\n", b"nothing\n", b'{"turn": "Eat", "seconds": 1}\n'])
async def test_a_malformed_request_is_answered(asked: bytes, tmp_path: Path) -> None:
    open_gate(tmp_path)
    agent = Agent(tmp_path)
    async with serving_turns(agent.turns, tmp_path):
        reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET)
        writer.write(asked)
        answer = TurnAnswer.model_validate_json(await reader.readline())
        writer.close()
        await writer.wait_closed()
    assert not answer.granted
    assert answer.message.startswith("malformed request")
    await agent.session.close()
