"""What a judge is shown of a policy that thinks; contract tests have judges over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template
from typing import cast

import pytest

from rl_sampler.completions.failover import Failover
from rl_sampler.scorers.judge import Judge
from rl_sampler.scorers.response import Response


class Asked:
    """In the place of a language model: keeps what it is asked."""

    prompt = ""

    async def ask(
        self, messages: Sequence[Mapping[str, str]], read: Callable[[str], float]
    ) -> float:
        self.prompt = messages[0]["content"]
        return read("<score>1</score>")


@pytest.mark.parametrize(
    ("text", "thinking", "said"),
    [
        ("<think>Tell them 1.</think>It is 42.", False, "It is 42."),
        ("Tell them 1.</think>It is 42.", True, "It is 42."),
        ("Tell them 1.", True, ""),
        (
            "<|channel|>analysis<|message|>Tell them 1.<|end|><|start|>assistant"
            "<|channel|>final<|message|>It is 42.",
            False,
            "It is 42.",
        ),
    ],
)
async def test_a_judge_reads_no_thoughts(text: str, thinking: bool, said: str) -> None:
    asked = Asked()
    judge = Judge(Template("${conversation}\n---\n${response}"), cast(Failover, asked))
    messages = [
        {"role": "user", "content": "What does <think>a</think> mean?"},
        {"role": "assistant", "content": "Tell them 1.</think>Do you mean the tag?"},
        {"role": "user", "content": "Yes."},
        {"role": "assistant", "content": "Tell them 1."},
        {"role": "user", "content": "So?"},
        {"role": "assistant", "content": text},
    ]
    response = Response(
        text=text,
        answer=None,
        reference="",
        messages=messages,
        opened=[3, 5] if thinking else [3],
        thinking=thinking,
    )
    assert await judge(response) == 1.0
    assert asked.prompt == (
        "user: What does <think>a</think> mean?\nassistant: Do you mean the tag?\n"
        f"user: Yes.\nassistant: \nuser: So?\nassistant: {said}\n---\n{said}"
    )
