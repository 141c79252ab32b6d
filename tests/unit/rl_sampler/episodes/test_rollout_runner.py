"""Members whose engine ends, and what is kept of their turns."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rl_contracts.documents.rollout import Rollout
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.agents.group import Group
from rl_sampler.agents.member import Member
from rl_sampler.agents.policy import Policy
from rl_sampler.agents.tool_loop import tool_loop
from rl_sampler.agents.user import ScriptedUser
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.slots import Slots
from rl_sampler.episodes.rollout import resumable
from rl_sampler.episodes.rollout_runner import RolloutRunner
from rl_sampler.episodes.turn_saves import KeptTurns, TurnSaves
from rl_sampler.scorers import Scorers
from rl_sampler.tasks.claims import Claim
from rl_sampler.tools.toolbox import Tools
from tests.documents import a_task
from tests.manifests import a_job
from tests.unit.rl_sampler.agents.scripted import QUESTION, call, play, unfinished

TASK = a_task(attempt=2, group_size=1)


def spec_of(durability: str) -> RLJobSpec:
    server = {"name": "calculator", "url": "http://calculator/mcp"}
    if durability == "Turns":
        server |= {"replayable": True}  # type: ignore[dict-item]
    agent = {"kind": "ToolLoop", "mcpServers": [server], "durability": durability}
    return RLJobSpec.model_validate(a_job(agent=agent)["spec"])


async def one_turn() -> tuple[Member, Rollout]:
    """An episode, and what was saved of it behind its first turn."""
    saves: list[Rollout] = []

    def save(member: Member) -> None:
        saves.append(unfinished(member, TASK.model_copy(update={"attempt": 1})))

    played = await play([call(a=1), "It is 41."], answers={'{"a": 1}': "41"}, on_turn=save)
    assert played.member.progress is None, "its last turn ended it"
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
    assert resumable([saved, failed], task=TASK, oldest_step=3) == {0: failed}
    assert (failed.tokens, failed.turns) == (saved.tokens, saved.turns)
