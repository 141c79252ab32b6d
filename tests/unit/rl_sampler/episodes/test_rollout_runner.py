"""Members whose engine ends, and what is kept of their turns."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any, cast

import pytest

from rl_contracts import ids
from rl_contracts.documents.rollout import RewardPart, Rollout, StopReason
from rl_contracts.errors import RLError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import Reward
from rl_sampler.agents import Agent
from rl_sampler.agents.group import Group
from rl_sampler.agents.member import Member
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.prompt import PromptError
from rl_sampler.agents.tool_loop import tool_loop
from rl_sampler.agents.user import ScriptedUser
from rl_sampler.completions.errors import NoCompletionError
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineProtocolError, EngineUnavailableError
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.slots import Slots
from rl_sampler.episodes.rollout import resumable
from rl_sampler.episodes.rollout_runner import RolloutRunner
from rl_sampler.episodes.turn_saves import KeptTurns, TurnSaves
from rl_sampler.scorers import Scorers
from rl_sampler.scorers.response import Response
from rl_sampler.tasks.claims import Claim, ProgramLostError, UnusableMemberError
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Tools
from rl_sampler.user_code.call import UserCodeError
from tests.samples.documents import a_task
from tests.samples.manifests import a_job
from tests.unit.rl_sampler.agents.scripted import QUESTION, call, play, unfinished

TASK = a_task(attempt=2, group_size=1)


def spec_of(durability: str) -> RLJobSpec:
    server: dict[str, object] = {"name": "calculator", "url": "http://calculator/mcp"}
    if durability == "Turns":
        server |= {"replayable": True}
    agent = {"kind": "ToolLoop", "mcpServers": [server], "durability": durability}
    return RLJobSpec.model_validate(a_job(agent=agent)["spec"])


async def one_turn() -> tuple[Member, Rollout]:
    """An episode, and what was saved of it behind its first turn."""
    saves: list[Rollout] = []

    def save(member: Member) -> None:
        saves.append(unfinished(member, TASK.model_copy(update={"attempt": 1})))

    played = await play([call(a=1), "It is 41."], answers={'{"a": 1}': "41"}, on_turn=save)
    (saved,) = saves
    return played.member, saved


def group_without_engine(member: Member, spec: RLJobSpec) -> Group:
    nothing = cast(Any, None)
    counters = Counters()
    policy = Policy(
        claim=Claim(task=TASK, renewed=0.0),
        sampling=spec.agent.sampling,
        stop_tokens=(),
        engine=nothing,
        watch=nothing,
        serving=Serving(),
        slots=Slots(),
        counters=counters,
    )
    return Group(
        agent=spec.agent,
        task=TASK,
        chat=member.chat,
        policy=policy,
        tools=Tools({}, longest=99, counters=counters),
        users=lambda task: ScriptedUser([]),
        messages=QUESTION,
        prompt=member.prompt,
    )


@pytest.mark.parametrize("durability", ["Turns", "None"])
async def test_turns_outlive_an_engine_that_ends_in_the_middle_of_a_response(
    durability: str,
) -> None:
    member, saved = await one_turn()
    spec = spec_of(durability)
    runner = RolloutRunner(
        spec=spec, act=tool_loop, scorers=Scorers(), serving=Serving(), counters=Counters()
    )
    turns = KeptTurns(saves=cast(TurnSaves, None), saved={0: saved})
    group = group_without_engine(member, spec)
    (failed,) = await runner.run_together(group, [0], turns=turns)
    assert failed.error is not None
    assert failed.error.message == "engine is not up"
    assert (failed.continues, failed.replayed_turns) == (saved.id, 1)
    if durability == "None":
        assert failed.unfinished is None
        return
    assert failed.unfinished == saved.unfinished
    assert resumable([saved, failed], [], task=TASK, oldest_step=3) == {0: failed}
    assert (failed.tokens, failed.turns) == (saved.tokens, saved.turns)


async def test_replayed_tokens_are_not_counted_as_generated() -> None:
    member, saved = await one_turn()
    spec, counters = spec_of("Turns"), Counters()
    runner = RolloutRunner(
        spec=spec, act=tool_loop, scorers=Scorers(), serving=Serving(), counters=counters
    )
    turns = KeptTurns(saves=cast(TurnSaves, None), saved={0: saved})
    await runner.run_together(group_without_engine(member, spec), [0], turns=turns)
    assert (counters.turns_replayed, counters.tokens_generated) == (1, 0), "the engine was down"


class FailingScorers(Scorers):
    """Whose scorer fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def score(self, response: Response, *, reward: Reward) -> list[RewardPart]:
        raise self.error


class ScorerFailedError(RLError):
    """What a scorer raises that no one foresaw."""


def failing(error: Exception, *, further: bool) -> Agent:
    """An agent that fails, or whose scorers do, behind turns of its own or of another attempt."""

    async def act(member: Member) -> StopReason:
        if further:
            member.replayed_turns = 0
        if isinstance(error, ScorerFailedError):
            return StopReason.STOP
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "further", "goes_on"),
    [
        (ToolDownError("the server is down"), True, True),
        (ToolDownError("the server is down"), False, False),
        (NoCompletionError("the simulated user gives nothing"), True, True),
        (UserCodeError("a tool raised"), True, True),
        (ScorerFailedError("the scorer broke"), True, True),
        (ScorerFailedError("the scorer broke"), False, False),
        (EngineUnavailableError("gone"), False, True),
        (ProgramLostError("gone"), False, True),
        (EngineProtocolError("a token without a log-probability"), True, False),
        (UnusableMemberError("too old"), True, False),
        (ValueError("a bug"), True, False),
    ],
)
async def test_what_fails_beside_the_policy_keeps_the_turns_unless_no_attempt_gets_further(
    error: Exception, further: bool, goes_on: bool
) -> None:
    member, saved = await one_turn()
    runner = RolloutRunner(
        spec=spec_of("Turns"),
        act=failing(error, further=further),
        scorers=FailingScorers(error),
        serving=Serving(),
        counters=Counters(),
    )
    group = group_without_engine(member, spec_of("Turns"))
    turns = KeptTurns(saves=cast(TurnSaves, None), saved={0: saved})
    (failed,) = await runner.run_separately(group, [0], turns=turns, seconds=0, enough=1)
    assert failed.error is not None
    assert str(error) in failed.error.message
    assert (failed.unfinished is not None) == goes_on
    assert (failed.id, failed.attempt) == (ids.rollout_id(ids.TaskId(TASK.id), 2, 0), 2)


async def test_the_latest_attempt_that_had_a_turn_decides_whether_it_is_continued() -> None:
    _, saved = await one_turn()
    failed = saved.model_copy(update={"id": "b", "attempt": 2, "unfinished": None})
    task = TASK.model_copy(update={"attempt": 3})
    assert resumable([saved, failed], [], task=task, oldest_step=3) == {}
    never_began = failed.model_copy(update={"turns": []})
    assert resumable([saved, never_began], [], task=task, oldest_step=3) == {0: saved}


async def test_saved_turns_count_until_their_attempt_has_written_the_member() -> None:
    member, saved = await one_turn()
    task = TASK.model_copy(update={"attempt": 9})
    continued = resumable([], member.finished, task=task, oldest_step=3)
    assert continued[0].tokens == saved.tokens
    written = saved.model_copy(update={"id": member.finished[0].rollout, "unfinished": None})
    assert resumable([written], member.finished, task=task, oldest_step=3) == {}


async def never_asked(response: Response) -> float:
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('[{"input": "1", "output": "2"}]', ""),
        ("assert f(1) == 2", ""),
        ("assert f(1) ==", "scorer Code cannot use .* not Python"),
        (json.dumps([{"output": "1" * 70_000}]), "scorer Code cannot use .* 70000 bytes"),
    ],
)
def test_a_record_that_no_program_can_pass_is_refused_before_anything_is_sampled(
    answer: str, why: str
) -> None:
    runner = RolloutRunner(
        spec=RLJobSpec.model_validate(a_job(reward={"scorers": [{"kind": "Code"}]})["spec"]),
        act=tool_loop,
        scorers=Scorers({"Code": never_asked}),
        serving=Serving(),
        counters=Counters(),
    )
    with pytest.raises(PromptError, match=why) if why else nullcontext():
        runner.check_scorers(a_task(answer=answer))
