from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_contracts.documents.task import Message
from rl_sampler.agents.prompt import (
    PromptError,
    Prompts,
    check_length,
    load_prompts,
    stop_tokens,
    tokens_left,
)
from tests.contract.rl_sampler.tiny_model import ADDED, END, VOCABULARY, write_model

END_ID = 256 + ADDED.index(END)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def prompts(model: Path) -> Prompts:
    return load_prompts(model)


@pytest.mark.parametrize(
    ("prompt", "turn", "context", "engine", "left"),
    [
        (10, 8, 64, 512, 8),
        (60, 8, 64, 512, 4),
        (63, 8, 64, 512, 1),
        (60, 8, 1000, 64, 4),
        (1, 1, 2, 2, 1),
    ],
)
def test_tokens_left_is_the_smallest_of_three_limits(
    prompt: int, turn: int, context: int, engine: int, left: int
) -> None:
    assert tokens_left(prompt=prompt, turn=turn, context=context, engine=engine) == left


@pytest.mark.parametrize(
    ("prompt", "context", "engine", "named"),
    [
        (64, 64, 512, "spec.agent.sampling.maxContextTokens = 64"),
        (70, 64, 512, "a prompt of 70 tokens"),
        (64, 1000, 64, "64 tokens that the engine takes"),
    ],
)
def test_prompt_without_room_raises_prompt_error(
    prompt: int, context: int, engine: int, named: str
) -> None:
    with pytest.raises(PromptError, match=named):
        tokens_left(prompt=prompt, turn=8, context=context, engine=engine)


def test_prompt_ends_with_the_start_of_the_models_turn(prompts: Prompts) -> None:
    ids = prompts.encode([Message(role="user", content="1+1=")])
    text = prompts.decode(ids)
    assert text == "<|user|>1+1=<|end|><|assistant|>"
    assert max(ids) < VOCABULARY


def test_template_refusal_raises_prompt_error(prompts: Prompts) -> None:
    with pytest.raises(PromptError, match="only users here"):
        prompts.encode([Message(role="system", content="x")])


def test_token_id_outside_the_vocabulary_raises_prompt_error(model: Path, tmp_path: Path) -> None:
    for path in model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((model / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 257}))
    with pytest.raises(PromptError, match="the model has only 257 tokens"):
        load_prompts(tmp_path).encode([Message(role="user", content="x")])


def test_decode_drops_only_the_final_stop_token(prompts: Prompts) -> None:
    token = prompts.encode([Message(role="user", content="1")])[1]
    assert prompts.stop_tokens == (END_ID,)
    assert prompts.decode([token, END_ID]) == "1"
    assert prompts.decode([token, token]) == "11"
    assert prompts.decode([token, END_ID, token]) == "1<|end|>1"
    assert prompts.decode([END_ID]) == ""


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "wanted"),
    [
        ([7, 5], 5, 5, (5, 7)),
        (7, None, None, (7,)),
        (None, [3], 4, (3, 4)),
        (None, None, None, ()),
    ],
)
def test_stop_tokens_are_the_union_of_all_sources(
    tmp_path: Path, generation: object, config: object, tokenizer: int | None, wanted: object
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": config}))
    assert stop_tokens(tmp_path, tokenizer_eos=tokenizer) == wanted


def test_model_without_tokenizer_raises_prompt_error(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    with pytest.raises(PromptError, match="tokenizer"):
        load_prompts(tmp_path)


def test_the_chat_template_gets_the_arguments_of_the_manifest(model: Path) -> None:
    prompts = load_prompts(model, {"enable_thinking": False})
    switch = "{% if enable_thinking is false %}<think></think>{% endif %}"
    prompts._tokenizer.chat_template += switch
    asked = [{"role": "user", "content": "1"}]
    assert prompts.render(asked, tools=()).endswith("<think></think>")
    prompts._arguments = {}
    assert not prompts.render(asked, tools=()).endswith("<think></think>")


def test_a_template_of_the_manifest_replaces_the_models_own(model: Path) -> None:
    template = "{% for message in messages %}<{{ message.content }}>{% endfor %}{{ mood }}"
    prompts = load_prompts(model, {"mood": "!"}, template=template)
    assert prompts.render([{"role": "user", "content": "1+1="}], tools=()) == "<1+1=>!"


@pytest.mark.parametrize(("tokens", "most"), [(3, None), (3, 3), (1, 3)])
def test_prompts_within_their_limit_pass(tokens: int, most: int | None) -> None:
    check_length([7] * tokens, most=most)


def test_a_prompt_beyond_its_limit_names_the_field() -> None:
    with pytest.raises(PromptError, match=r"of 4 tokens .*sampling\.maxPromptTokens = 3: raise"):
        check_length([7] * 4, most=3)
