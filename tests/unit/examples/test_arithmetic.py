import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import AutoTokenizer

SCRIPTS = Path(__file__).parents[3] / "examples" / "arithmetic"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    names = ("make_data", "byte_tokenizer", "make_model")
    return {name: importlib.import_module(name) for name in names}


def test_no_held_out_addition_is_seen_in_training(scripts: dict[str, ModuleType]) -> None:
    parts = scripts["make_data"].split()
    held_out = {frozenset((item.left, item.right)) for item in parts.test}
    assert len(parts.test) == len(held_out) == 200
    assert len(set(parts.train)) == 2048
    assert set(parts.train) <= set(parts.unheld)
    assert held_out.isdisjoint({frozenset((item.left, item.right)) for item in parts.unheld})
    assert parts == scripts["make_data"].split()


def test_records_have_unique_ids_and_right_answers(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    path = tmp_path / "test.jsonl"
    scripts["make_data"].write_records(path, scripts["make_data"].split().test)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({record["id"] for record in records}) == len(records) == 200
    for record in records:
        left, right = record["query"].removesuffix("=").split("+")
        assert int(left) + int(right) == int(record["answer"])


@pytest.mark.parametrize("text", ["17+25=", "<answer>42</answer>", "é ✓\n\t", "  a  b "])
def test_every_text_survives_the_tokenizer(
    scripts: dict[str, ModuleType], tmp_path: Path, text: str
) -> None:
    scripts["byte_tokenizer"].byte_tokenizer(512).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == 264
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_the_chat_template_gives_the_prompt_of_the_warm_start(
    scripts: dict[str, ModuleType],
) -> None:
    tokenizer = scripts["byte_tokenizer"].byte_tokenizer(512)
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+2="}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert prompt == "<|system|>Add.<|end|><|user|>1+2=<|end|><|assistant|>"
    assert tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|end|>")


def test_labels_are_the_tokens_that_follow_within_the_answer(
    scripts: dict[str, ModuleType],
) -> None:
    make_model, make_data = scripts["make_model"], scripts["make_data"]
    tokenizer = scripts["byte_tokenizer"].byte_tokenizer(512)
    warmstart = make_model.Warmstart(make_model.Recipe(), tokenizer)
    ids, labels = warmstart.batch([(make_data.Addition(1, 2), 3), (make_data.Addition(60, 70), 1)])
    for row in range(2):
        asked = (labels[row] != make_model.IGNORED).nonzero()[:, 0]
        assert labels[row, asked].tolist() == ids[row, asked + 1].tolist()
    asked = labels[1][labels[1] != make_model.IGNORED]
    assert tokenizer.decode(asked) == "<answer>1</answer><|end|>"


@pytest.fixture
def _torch_settings() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.mark.usefixtures("_torch_settings")
def test_the_same_recipe_gives_the_same_bytes(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    make_model = scripts["make_model"]
    recipe = replace(
        make_model.Recipe(), clean_steps=2, noisy_steps=1, batch=8, threads=1, accepted=(0.0, 1.0)
    )
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        make_model.make(folder, recipe)
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert first == second
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= set(first)
