"""Episodes that another attempt continues behind their last finished turn."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Queue
from rl_sampler.agents.member import Member
from rl_sampler.agents.trace import continues_prompt
from rl_sampler.episodes.rollout import Ending, build_rollout, resumable
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.scripted import TOOL, Played, call, play, unfinished

TASK = a_task(attempt=1)
TOOLS: dict[str, Any] = {
    "script": ["thinking", call(a=1), call(a=2), "It is 42.", "It is 42."],
    "answers": {'{"a": 1}': "41", '{"a": 2}': "42"},
    "minTurns": 5,
    "repetitionLimit": 1,
}
TALK: dict[str, Any] = {
    "script": ["one", call(a=1), "two", "three"],
    "answers": {'{"a": 1}': "41"},
    "user": ["And?", "Go on."],
    "tools": (TOOL,),
    "kind": "Conversation",
}
THOUGHTS: dict[str, Any] = {
    "script": ["one", "1</think>two", "three"],
    "answers": {},
    "user": ["And?", "Go on."],
    "tools": (),
    "kind": "Conversation",
    "model": "qwen3_5_think",
}
ACTION = 'Thought: so\nAction: calc\nAction Input: {{"a": {}}}'
REACT: dict[str, Any] = {
    "script": [ACTION.format(1), "neither", ACTION.format(2), "Final Answer: 42"],
    "answers": {'{"a": 1}': "41", '{"a": 2}': "42"},
    "kind": "ReAct",
}


def saved(member: Member) -> Rollout:
    save = unfinished(member, TASK)
    assert unpack_int32(save.tokens) == member.trace.tokens
    assert (save.mask, save.spans) == (bytes(member.trace.mask), member.trace.spans)
    assert unpack_float32(save.logprobs) == member.trace.logprobs, "halves are exact"
    assert save.turns == member.turns
    return save


def written(played: Played) -> dict[str, Any]:
    """What is stored of an episode, without what differs by attempt."""
    ending = Ending(stop_reason=played.reason)
    rollout = build_rollout(
        played.member.trace, played.member.turns, ending, task=TASK, member=0, claimed_at=1.0
    )
    return rollout.model_dump(exclude={"turns": {"__all__": {"tool_seconds"}}, "timings": True})


@pytest.mark.parametrize(
    "episode",
    [TOOLS, TALK, THOUGHTS, REACT],
    ids=["ToolLoop", "Conversation", "thoughts", "ReAct"],
)
async def test_a_continued_episode_is_the_same_to_the_byte(episode: dict[str, Any]) -> None:
    saves: list[Rollout] = []
    whole = await play(**episode, on_turn=lambda member: saves.append(saved(member)))
    assert len(saves) == len(whole.member.turns) - 1
    for number, save in enumerate(saves, start=1):
        rest = episode["script"][number:]
        # The tools answer nothing that was answered before.
        used = [made.arguments for turn in save.turns for made in turn.calls]
        answers = {
            wanted: "called again!" if wanted in used else answer
            for wanted, answer in episode["answers"].items()
        }
        continued = await play(**{**episode, "script": rest, "answers": answers}, saved=save)
        assert continued.policy.script == [], "as many responses as were left"
        assert written(continued) == written(whole)
        assert continued.member.conversation == whole.member.conversation
        assert continued.member.opened == whole.member.opened
        assert continued.member.replayed_turns == number
        assert continued.member.policy.claim.begun == {0: save.oldest_step}


async def test_the_newest_save_that_may_still_be_trained_is_continued() -> None:
    saves: list[Rollout] = []
    await play(**TOOLS, on_turn=lambda member: saves.append(saved(member)))
    again = TASK.model_copy(update={"attempt": 3})
    later = saves[1].model_copy(update={"attempt": 2})
    finished = saves[2].model_copy(update={"unfinished": None, "member": 1})
    stored = [later, saves[0], finished]
    assert resumable(stored, [], task=again, oldest_step=3) == {0: later}
    assert resumable(stored, [], task=again, oldest_step=4) == {}, "its oldest token is of step 3"
    evaluation = again.model_copy(update={"queue": Queue.EVALUATION, "evaluation_version": 5})
    assert resumable(stored, [], task=evaluation, oldest_step=0) == {}, "of another version"
    prompt = later.turns[0].response.start
    tokens = unpack_int32(later.tokens)[:prompt]
    assert continues_prompt(later, tokens)
    assert not continues_prompt(later, [*tokens[:-1], tokens[-1] + 1]), "the tools have changed"
