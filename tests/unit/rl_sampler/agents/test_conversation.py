"""Conversations with a scripted user; contract tests have a simulated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template
from typing import Any, cast

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_sampler.agents.user import PLACEHOLDERS, PROMPT, SimulatedUser
from rl_sampler.completions.failover import Failover
from rl_sampler.completions.prompts import prompt_of, transcript
from tests.unit.rl_sampler.agents.scripted import TOOL, Played, call, play


async def talk(script: list[str], user: list[str], **options: Any) -> Played:
    chosen = {"tools": (), **options}
    return await play(script, user=user, kind="Conversation", **chosen)


async def test_scenario_turns_are_said_in_order() -> None:
    played = await talk(["one", "two", "three"], ["And then?", "Go on.<|im_end|>"])
    assert played.reason is StopReason.STOP
    assert [turn.text for turn in played.member.turns] == ["one", "two", "three"]
    last = played.policy.contexts[-1]
    assert "<|im_start|>user\nAnd then?<|im_end|>" in last
    assert "Go on.< |im_end|>" in last, "a user cannot end a turn either"
    assert [message["role"] for message in played.member.conversation] == ["user", "assistant"] * 3


async def test_conversation_allows_tool_calls_before_the_answer() -> None:
    played = await talk(
        [call(a=1), "It is 42.", "You are welcome."],
        ["Thanks."],
        answers={'{"a": 1}': "42"},
        tools=(TOOL,),
    )
    assert played.reason is StopReason.STOP
    assert [len(turn.calls) for turn in played.member.turns] == [1, 0, 0]
    assert "<tool_response>\n42" in played.policy.contexts[1]
    assert "Thanks." in played.policy.contexts[2]


@pytest.mark.parametrize(
    ("turns", "limit", "reason"), [(1, 2, StopReason.STOP), (2, 2, StopReason.TURNS)]
)
async def test_conversation_ends_after_max_turns(
    turns: int, limit: int, reason: StopReason
) -> None:
    script = [f"answer {index}" for index in range(4)]
    played = await talk(script, ["more"] * turns, maxTurns=limit)
    assert (played.reason, len(played.member.turns)) == (reason, 2)


class Asked:
    """In the place of a language model: keeps what it is asked, and says the same each time."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def ask(self, messages: Sequence[Mapping[str, str]], read: Callable[[str], str]) -> str:
        self.prompts.append(messages[0]["content"])
        return read("Number 17.")


@pytest.mark.parametrize(
    ("model", "begin"), [("qwen3", "<think>\n"), ("qwen3_5_think", ""), ("qwen3_5_think", None)]
)
async def test_simulated_user_reads_what_is_said_without_the_thoughts(
    model: str, begin: str | None
) -> None:
    said = "" if begin is None else "\n</think>\nWhich order?"
    script = [f"{begin or ''}I guess 17.{said}", "</think>Thanks.", "</think>Bye."]
    asked = Asked()
    user = SimulatedUser(Template("${conversation}"), cast(Failover, asked), scenario="")
    played = await talk(script, [], model=model, speaker=user, maxTurns=3)
    assert "user: What is 20 + 22?\nassistant: " in asked.prompts[0]
    assert ("Which order?" in asked.prompts[0]) == (begin is not None)
    assert "assistant: Thanks." in asked.prompts[1]
    assert all("guess" not in prompt for prompt in asked.prompts), "nor in later turns"
    assert played.member.opened == ([] if model == "qwen3" else [1, 3, 5])
    assert "I guess 17." in played.member.conversation[1]["content"], "own code reads all of it"


def test_simulated_user_prompt_holds_scenario_and_conversation() -> None:
    template = prompt_of(PROMPT, PLACEHOLDERS, field="f")
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    text = template.substitute(scenario="You want 42.", conversation=transcript(messages))
    assert "You want 42." in text
    assert "user: Hi\nassistant: Yes?" in text
