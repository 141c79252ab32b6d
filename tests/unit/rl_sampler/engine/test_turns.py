"""What an agent makes of the note about turns that an earlier process left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import cast

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import WeightSync
from rl_contracts.turns import GATE, SOCKET, Turn, TurnAnswer, TurnRequest
from rl_sampler.engine.client import Engine, PingResult, open_session
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineUnavailableError
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.turn_server import serving_turns
from rl_sampler.engine.turns import CHANGING, NOTE, TurnError, Turns, open_gate
from rl_sampler.engine.weights import Staged, WeightsFolder
from rl_sampler.policy.follow import PolicyFollower
from rl_sampler.policy.stage import Stager
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


class Recording:
    """An engine that answers, and keeps its memory as long as it is the first process."""

    def __init__(self, refused: str = "") -> None:
        self.calls: list[str] = []
        self.refused, self.label = refused, "base"

    async def ping(self) -> PingResult:
        return PingResult.ANSWERS

    async def pause(self, mode: str) -> None:
        pass

    async def resume(self) -> None:
        pass

    async def release_memory(self, *, seconds: float) -> None:
        self._call("release")

    async def resume_memory(self, *, seconds: float) -> None:
        self._call("take")

    async def load(self, folder: Path, *, label: str, seconds: float, empty_cache: bool) -> None:
        self._call("load")
        self.label = label

    async def weight_version(self) -> str:
        return self.label

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.refused:
            raise EngineUnavailableError(f"no answer to {name}")


class Colocated(Agent):
    """The same with an engine that answers, and with a policy to load into it."""

    def __init__(self, folder: Path, *, refused: str = "") -> None:
        super().__init__(folder)
        self.recording = Recording(refused)
        engine = cast("Engine", self.recording)
        self.turns = Turns(
            folder,
            engine=engine,
            health=self.health,
            serving=self.serving,
            problems=self.problems,
        )
        self.follower = PolicyFollower(
            engine=engine,
            health=self.health,
            stager=cast("Stager", None),
            weights=WeightsFolder(folder),
            serving=self.serving,
            counters=Counters(),
            problems=self.problems,
            sync=WeightSync(),
        )
        pointer = PolicyPointer(version=3, epoch=1, step=2, prefix="p/", manifest_sha256="0")
        self.follower._served = Staged(pointer=pointer, folder=folder / "p")
        self.engine_up()

    def engine_up(self) -> None:
        self.health.observe(PingResult.ANSWERS, now=time.monotonic())
        self.serving.engine = ServerInfo(
            version="x", max_running_requests=1, max_req_input_len=1, device="cuda"
        )
        self.serving.changed()

    def engine_restarts(self) -> None:
        """As the watch sees it."""
        self.health.observe(PingResult.NOT_LISTENING, now=time.monotonic())
        self.serving.engine, self.recording.refused = None, ""
        self.engine_up()

    async def follow(self) -> list[str]:
        """What the follower's next step asks of the engine."""
        before = len(self.recording.calls)
        await self.follower._step()
        return self.recording.calls[before:]


@pytest.mark.parametrize(
    ("note", "refused", "calls"),
    [
        pytest.param(CHANGING, "", [], id="the agent ended during a change"),
        pytest.param(Turn.SAMPLE, "release", ["release"], id="the engine kept its memory"),
        pytest.param(Turn.TRAIN, "take", ["take"], id="the engine did not take its memory"),
    ],
)
async def test_only_an_engine_that_was_restarted_gets_a_policy_and_another_turn(
    note: str, refused: str, calls: list[str], tmp_path: Path
) -> None:
    (tmp_path / NOTE).write_text(note)
    agent = Colocated(tmp_path, refused=refused)
    change = Turn.SAMPLE if note == Turn.TRAIN else Turn.TRAIN
    for request in (change, Turn.TRAIN):  # the trainer asks again
        with pytest.raises(TurnError):
            await agent.turns.take(TurnRequest(turn=request, version=3, seconds=0.02))
        assert await agent.follow() == []
    assert agent.recording.calls == calls
    assert agent.restart_reason
    assert (tmp_path / NOTE).read_text() == CHANGING, "another agent would know it, too"
    agent.engine_restarts()
    assert not agent.restart_reason
    assert await agent.follow() == ["load"]
    await agent.turns.take(TurnRequest(turn=Turn.TRAIN, version=3, seconds=60))
    assert agent.recording.calls == [*calls, "load", "release"]
    await agent.session.close()


@pytest.mark.parametrize("note", [CHANGING, Turn.TRAIN])
async def test_another_agent_does_not_restart_an_engine_that_was_restarted_and_serves(
    note: str, tmp_path: Path
) -> None:
    (tmp_path / NOTE).write_text(note)
    agent = Colocated(tmp_path, refused="take")
    request = TurnRequest(turn=Turn.SAMPLE, version=3, seconds=0.02)
    with pytest.raises(TurnError):
        await agent.turns.take(request)
    agent.engine_restarts()
    assert await agent.follow() == ["load"]
    await agent.turns.take(request)
    another = Agent(tmp_path)
    assert not another.health.must_restart
    for each in (agent, another):
        await each.session.close()


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
