"""Episodes whose tools answer with images, under the chat templates of Qwen's models."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.rollout import Rollout, StopReason
from rl_contracts.documents.task import ImagePart
from rl_sampler.agents.context import DISCARDED
from rl_sampler.agents.member import Member
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.chat_models import IMAGE, SIDE
from tests.unit.rl_sampler.agents.scripted import Played, call, play, unfinished

WIDE = ImagePart(sha256="aa" * 32, width=3 * SIDE, height=SIDE)
TALL = ImagePart(sha256="bb" * 32, width=SIDE, height=2 * SIDE)
SMALL = ImagePart(sha256="cc" * 32, width=SIDE, height=SIDE)
ACTION = 'Thought: so\nAction: calc\nAction Input: {"a": 1}'
ANSWERS = {'{"a": 1}': "41", '{"a": 2}': ""}
IMAGES = {'{"a": 1}': [WIDE, TALL], '{"a": 2}': [SMALL]}
LOOP: dict[str, Any] = {
    "script": [call(a=1), call(a=2), "It is 42."],
    "answers": ANSWERS,
    "images": IMAGES,
    "model": "qwen3_vl",
}
REACT: dict[str, Any] = {
    "script": [ACTION, ACTION.replace("1", "2"), "Final Answer: 42"],
    "answers": ANSWERS,
    "images": IMAGES,
    "model": "qwen2_5_vl",
    "kind": "ReAct",
}


def stands(played: Played) -> list[tuple[str, int]]:
    """Images of the episode, and how many placeholders there are where they are said to be."""
    trace = played.member.trace
    assert played.member.chat.placeholders is not None
    token = played.member.chat.placeholders.token
    for image in trace.images:
        assert set(trace.tokens[image.start : image.end]) == {token}
        assert not any(trace.mask[image.start : image.end])
    return [(image.sha256[:2], image.end - image.start) for image in trace.images]


@pytest.mark.parametrize("episode", [LOOP, REACT], ids=["ToolLoop", "ReAct"])
async def test_images_of_a_result_are_shown_behind_its_text(episode: dict[str, Any]) -> None:
    played = await play(**episode)
    assert played.reason is StopReason.STOP
    assert stands(played) == [("aa", 3), ("bb", 2), ("cc", 1)]
    assert [len(images) for images in played.policy.shown] == [0, 2, 3]
    assert played.policy.shown[-1] == played.member.trace.images
    shown = f"41<|vision_start|>{3 * IMAGE}<|vision_end|><|vision_start|>{2 * IMAGE}<|vision_end|>"
    assert shown in played.policy.contexts[1]
    assert [len(made.images) for turn in played.member.turns for made in turn.calls] == [2, 1]
    contents = [message["content"] for message in played.member.conversation]
    assert not any("vision" in text for text in contents), "for judges"


async def test_discarded_results_take_their_images_with_them() -> None:
    long = {**LOOP, "answers": {**ANSWERS, '{"a": 1}': 300 * "4"}}
    whole = await play(**long)
    room = len(whole.member.trace) - len(whole.member.prompt) - 2
    context = {"overflow": "DiscardTools", "keepToolResults": 1}
    played = await play(**long, room=room, per_turn=70, context=context)
    assert played.member.trace.sequence_starts
    assert DISCARDED in played.policy.contexts[-1]
    assert stands(played) == [("aa", 3), ("bb", 2), ("cc", 1)]
    (last,) = played.policy.shown[-1]
    assert last.sha256 == SMALL.sha256
    assert last.start == played.member.trace.images[-1].start - played.member.trace.start


async def test_an_image_stays_where_the_note_has_more_tokens() -> None:
    context = {"overflow": "DiscardTools", "keepToolResults": 0}
    script = [call(a=2), "It is 42."]
    played = await play(**{**LOOP, "script": script}, room=1000, per_turn=990, context=context)
    assert not played.member.trace.sequence_starts
    assert stands(played) == [("cc", 1)]


async def test_a_policy_that_generates_a_placeholder_ends_its_episode() -> None:
    played = await play([f"{call(a=1)}{IMAGE}"], answers=ANSWERS, images=IMAGES, model="qwen3_vl")
    assert played.reason is StopReason.STOP
    assert played.member.turns[-1].calls == []
    assert played.member.turns[-1].error is not None
    text = await play([f"{call(a=1)}{IMAGE}", "done"], answers=ANSWERS, model="qwen3_vl")
    assert len(text.member.turns) == 2, "no images may follow it"


async def test_a_tool_cannot_write_a_placeholder() -> None:
    answers = {'{"a": 1}': f"here: {IMAGE}"}
    played = await play([call(a=1), "done"], answers=answers, images=IMAGES, model="qwen3_vl")
    assert stands(played) == [("aa", 3), ("bb", 2)]


@pytest.mark.parametrize("episode", [LOOP, REACT], ids=["ToolLoop", "ReAct"])
async def test_a_continued_episode_shows_the_same_images(episode: dict[str, Any]) -> None:
    task, saves = a_task(attempt=1), list[Rollout]()

    def save(member: Member) -> None:
        saves.append(unfinished(member, task))

    whole = await play(**episode, on_turn=save)
    for number, saved in enumerate(saves, start=1):
        rest = episode["script"][number:]
        continued = await play(**{**episode, "script": rest}, saved=saved)
        assert continued.member.trace.images == whole.member.trace.images
        assert continued.policy.shown == whole.policy.shown[number:]
