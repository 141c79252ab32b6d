"""Episodes in an environment that another attempt continues behind their last finished turn."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.rollout import Rollout
from rl_sampler.agents.member import Member
from rl_sampler.environments.protocol import EnvironmentDownError
from tests.network.openenv import FULL, PARTIAL, SmallServer, serving
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.scripted import call, unfinished
from tests.unit.rl_sampler.environments.playing import SEED, Played, play_at

TASK = a_task(0, fields=f'{{"seed": {SEED}}}')
TEXTS = ["8", "5", "nothing", "4"]
MISTAKES = ["no object", '{"message": "8"}', '{"word": "4"}', '{"message": "4"}']
CALLS = [
    call(tool="guess", number=8),
    f"{call(tool='guess', number=7)}\n{call(tool='guess', number=5)}",
    call(tool="guess", number=4),
]
REPLAYABLE: dict[str, Any] = {"agent": {"durability": "Turns"}, "replayable": True}


async def saves_of(script: list[str], server: SmallServer, **options: Any) -> list[Rollout]:
    """What is stored behind each finished turn."""
    saves: list[Rollout] = []

    def save(member: Member) -> None:
        saves.append(unfinished(member, TASK))

    async with serving(server) as url:
        played = await play_at(url, script, on_turn=save, task=TASK, **REPLAYABLE, **options)
    assert played.error is None, played.error
    return saves


async def continued(
    script: list[str], save: Rollout, server: SmallServer, **options: Any
) -> Played:
    again = TASK.model_copy(update={"attempt": TASK.attempt + 1})
    async with serving(server) as url:
        return await play_at(url, script, saved=save, task=again, **REPLAYABLE, **options)


def written(played: Played) -> object:
    """What an episode has become, but for its times."""
    member = played.member
    assert played.error is None, played.error
    turns = [turn.model_dump(exclude={"tool_seconds", "calls"}) for turn in member.turns]
    calls = [[(made.tool, made.outcome, made.result) for made in t.calls] for t in member.turns]
    trace = (member.trace.tokens, bytes(member.trace.mask), member.trace.spans)
    return played.reason, turns, calls, trace, member.earned, member.environment


@pytest.mark.parametrize(
    ("script", "options", "tools"),
    [
        (TEXTS, {}, False),
        (MISTAKES, {"action": "Json"}, False),
        (CALLS, {"action": "Tool"}, True),
    ],
    ids=["Text", "Json", "Tool"],
)
async def test_a_continued_episode_is_the_same(
    script: list[str], options: dict[str, Any], tools: bool
) -> None:
    saves = await saves_of(script, SmallServer(tools=tools), **options)
    assert len(saves) == len(script) - 1
    async with serving(SmallServer(tools=tools)) as url:
        whole = await play_at(url, script, task=TASK, **REPLAYABLE, **options)
    for number, save in enumerate(saves, start=1):
        server = SmallServer(tools=tools)
        played = await continued(script[number:], save, server, **options)
        assert written(played) == written(whole)
        assert played.policy.script == [], "as many responses as were left"
        assert (played.member.continues, played.member.replayed_turns) == (save.id, number)
        assert played.member.earned == pytest.approx(FULL + PARTIAL * (script is not MISTAKES))


async def test_another_attempt_resets_by_the_same_id() -> None:
    first, second = SmallServer(), SmallServer()
    save, *_ = await saves_of(TEXTS, first)
    await continued(TEXTS[1:], save, second)
    assert first.resets == second.resets


async def test_an_environment_that_answers_otherwise_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saves = await saves_of(TEXTS, SmallServer())
    server = SmallServer(faults=["", "swapped"])
    played = await continued(TEXTS, saves[1], server)
    assert played.member.earned == FULL + PARTIAL
    assert (played.member.continues, played.member.replayed_turns) == ("", 0)
    assert len(played.member.turns) == len(TEXTS)
    assert len(server.resets) == 2, "in the same session"
    assert "begins again: the environment answered turn 2 otherwise" in caplog.text


async def test_a_server_without_room_for_a_second_reset_is_asked_for_another_session() -> None:
    saves = await saves_of(TEXTS, SmallServer())
    server = SmallServer(faults=["", "swapped"], reset_faults=["", "busy"])
    played = await continued(TEXTS, saves[1], server)
    assert (played.error, played.member.earned) == (None, FULL + PARTIAL)
    assert (len(server.resets), server.opened) == (3, 2)


async def test_a_server_that_refuses_a_second_reset_is_down() -> None:
    saves = await saves_of(TEXTS, SmallServer())
    server = SmallServer(faults=["", "swapped"], reset_faults=["", "refused"])
    played = await continued(TEXTS, saves[1], server)
    assert isinstance(played.error, EnvironmentDownError)
    assert "refuses the arguments of reset" in str(played.error)


async def test_another_beginning_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    saves = await saves_of(TEXTS, SmallServer())
    other = saves[0].model_copy(update={"tokens": saves[0].tokens[4:] + saves[0].tokens[:4]})
    played = await continued(TEXTS, other, SmallServer())
    assert (played.member.earned, played.member.replayed_turns) == (FULL + PARTIAL, 0)
    assert "the first observation is another one" in caplog.text


async def test_an_environment_that_dies_in_a_replay_is_no_data() -> None:
    saves = await saves_of(TEXTS, SmallServer())
    played = await continued(TEXTS[1:], saves[0], SmallServer(faults=["die"]))
    assert isinstance(played.error, EnvironmentDownError)
    assert played.member.turns == []


async def test_without_the_promise_nothing_is_replayed_and_each_attempt_has_its_id() -> None:
    server = SmallServer()
    async with serving(server) as url:
        await play_at(url, TEXTS, task=TASK)
    assert server.resets[0]["episode_id"] == f"{TASK.id}-{TASK.attempt}-0"
