"""The tasks of the agents' examples are what the samplers make of them."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rl_contracts.spec.agent.agents import Agent
from rl_sampler.sandbox.tool import last_block
from rl_sampler.scorers.answers import ANSWERS

EXAMPLES = Path(__file__).parents[3] / "examples"
NAMES = ("calculator", "conversation", "programs", "search")


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES / "agents"))
    return importlib.import_module("tasks")


@pytest.fixture
def make(tasks: ModuleType) -> ModuleType:
    return importlib.import_module("make")


def answer(text: str) -> str | None:
    return ANSWERS["Answer"](text)


def is_right(record: dict[str, Any], final: str) -> bool:
    """Whether what an episode ends with is what the record asks for."""
    final_answer = answer(final)
    assert final_answer is not None
    if not final_answer.startswith("print"):
        return bool(final_answer == record["answer"])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(final_answer, {})
    (case,) = json.loads(record["answer"])
    return bool(printed.getvalue().strip() == case["output"])


@pytest.mark.parametrize("name", NAMES)
def test_right_episodes_end_right_and_careless_ones_do_not(tasks: ModuleType, name: str) -> None:
    task, chooser = tasks.TASKS[name], random.Random(1)
    for pair in tasks.split().test:
        record = task.record(*pair)
        right, careless = task.episode(pair), task.episode(pair, chooser)
        assert is_right(record, right[-1]["content"])
        assert not is_right(record, careless[-1]["content"])
        assert right[:1] == careless[:1]


@pytest.mark.parametrize("name", NAMES)
def test_no_held_out_pair_is_seen(tasks: ModuleType, name: str) -> None:
    pairs = tasks.split()
    assert set(pairs.train).isdisjoint(pairs.test)
    assert (len(pairs.train), len(pairs.test)) == (512, 64)
    everything = tasks.split(train=10_000)
    assert set(everything.train).isdisjoint(pairs.test)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_what_the_manifest_reads(tasks: ModuleType, tmp_path: Path, name: str) -> None:
    task = tasks.TASKS[name]
    job = tasks.job(task.manifest)
    Agent.model_validate(job["spec"]["agent"])
    path = tmp_path / "train.jsonl"
    tasks.write_records(path, task, tasks.split().train)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({record["id"] for record in records}) == len(records) == 512
    columns = job["spec"]["data"]["train"][0].get("columns", {})
    assert set(columns.values()) <= set(records[0])


@pytest.mark.parametrize("name", NAMES)
def test_the_chat_template_gives_the_prompt_of_the_warm_start(
    tasks: ModuleType, make: ModuleType, name: str
) -> None:
    task, pair = tasks.TASKS[name], (12, 34)
    tokenizer = make.new_tokenizer([make.text_of(task.episode(pair))])
    prompt = task.prompt(pair)
    shown = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
    whole = make.text_of(task.episode(pair))
    assert whole.startswith(shown)
    assert tokenizer.decode(tokenizer.encode(whole)) == whole


def test_the_code_agent_s_instructions_are_in_its_prompt(tasks: ModuleType) -> None:
    (system, _) = tasks.TASKS["programs"].prompt((12, 34))
    assert "You can run Python" in system["content"]
    first = tasks.TASKS["programs"].episode((12, 34))[2]["content"]
    assert last_block(first) == "print(12+34)\n"


def test_the_policy_s_tokens_alone_are_learned(tasks: ModuleType, make: ModuleType) -> None:
    task = tasks.TASKS["calculator"]
    episode = task.episode((12, 34))
    tokenizer = make.new_tokenizer([make.text_of(episode)])
    warmstart = make.Warmstart(task, make.Recipe(), tokenizer)
    _, labels = warmstart.batch([episode])
    learned = tokenizer.decode([int(label) for label in labels[0] if label != make.IGNORED])
    responses = [message["content"] for message in episode if message["role"] == "assistant"]
    assert learned == "".join(f"{text}<|end|>" for text in responses)
    assert re.search(r'"a": 12, "b": 34', learned)


def test_the_collection_holds_each_code_that_is_asked_for(
    tasks: ModuleType, tmp_path: Path
) -> None:
    pairs = tasks.split()
    path = tmp_path / "collection.jsonl"
    tasks.write_collection(path, pairs.train + pairs.test)
    documents = [json.loads(line)["contents"] for line in path.read_text().splitlines()]
    assert len(path.read_bytes()) < 1 << 20, "a ConfigMap holds no more"
    for pair in pairs.test:
        record = tasks.TASKS["search"].record(*pair)
        number = f"{pair[0]}{pair[1]}"
        assert number in record["query"]
        (only,) = (text for text in documents if number in re.findall(r"\d+", text))
        assert only == f"Locker {number}\nThe code is {record['answer']}."
