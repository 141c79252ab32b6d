"""The pages for people who come from elsewhere, and the tables of `kubectl rl convert`, agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rl_console.convert.conversion import Framework
from rl_console.convert.frameworks import FRAMEWORKS
from rl_console.convert.rules import Rule
from tests.unit.docs.pages import ROOT

PAGES = {"agentfly": "verl", "agentrl": "agentrl", "maxent": "maxent", "trl": "trl"}
NO_OPTIONS = {
    "agentrl": {
        *("id", "query", "answer", "agentcpm", "MCPScorerFactory.register_scorer", "DBRecordData"),
        *("AsyncSampler.run", "evaluate_record", "InferenceService", "Task", "Record"),
        *("DispatchedSamplingTask", "JSONL"),
    },
    "agentfly": {
        *("hf", "react", "code", "gui", "gae", "grpo", "reinforce_plus_plus", "rloo", "remax"),
        *("kl", "abs", "mse", "low_var_kl", "full", "auto", "disable", "resume_path", "vllm"),
    },
    "maxent": {"sbatch", "bash", "columns", "logs", "wandb_"},
    "trl": {
        *("ConversationEnvironment", "MultiTurnAgent", "system_prompt", "MultiObjectiveReward"),
        "messages",
    },
}
"""Words of the first columns that are values or code of the other framework."""
QUOTED = re.compile(r"`(?:#SBATCH )?-{0,2}([A-Za-z_][\w.-]*)[^`]*`")
GENERAL = {"max_steps", "num_train_epochs", "seed", "learning_rate", "model_name_or_path", "model"}
GENERAL |= {"nproc_per_node", "nnodes", "run_name", "config", "port"}
"""Options of torchrun, transformers and vLLM that the pages need not name."""


def rows(page: str) -> Iterator[tuple[str, str, str]]:
    text = (ROOT / "docs" / "coming-from" / f"{page}.md").read_text()
    for row in re.findall(r"^\| (`.*) \|\s*$", text, re.MULTILINE):
        first, here, note = (cell.strip() for cell in f"{row} ".split(" | "))
        yield first, here, note


def rule_of(framework: Framework, option: str) -> Rule | None:
    name = framework.name_of(option)
    matches = [each for each in framework.rules if each == name or each.endswith(f".{name}")]
    return framework.rules[matches[0]] if matches else None


def bare(path: str) -> str:
    return re.sub(r"\[\d*\]", "", path)


@pytest.mark.parametrize("page", PAGES)
def test_each_option_of_a_page_is_converted_as_the_page_says(page: str) -> None:
    framework = FRAMEWORKS[PAGES[page]]
    wrong = []
    for first, here, note in rows(page):
        for option in QUOTED.findall(first):
            rule = rule_of(framework, option)
            if rule is None:
                continue
            fields = [bare(field) for field in rule.fields]
            text = bare(f"{here} {note}")
            if here == "no":  # of one value, if the option has another row
                several = sum(option in row[0] for row in rows(page)) > 1
                fits = rule.state == "not available" or several
            elif fields:
                fits = any(field in text or field.startswith(_fields(text)) for field in fields)
            else:
                fits = rule.state == "not needed"
            if not fits:
                wrong.append((option, here, fields, rule.state))
    assert wrong == []


def _fields(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([a-z]\w*(?:\.\w+)+)", text)) or ("?",)


@pytest.mark.parametrize("page", PAGES)
def test_the_converter_knows_each_option_of_the_page(page: str) -> None:
    framework = FRAMEWORKS[PAGES[page]]
    listed = [option for first, _, _ in rows(page) for option in QUOTED.findall(first)]
    unknown = {option for option in listed if rule_of(framework, option) is None}
    assert unknown - NO_OPTIONS[page] == set()


@pytest.mark.parametrize("page", PAGES)
def test_the_page_names_each_option_of_the_converter(page: str) -> None:
    framework = FRAMEWORKS[PAGES[page]]
    page_text = (ROOT / "docs" / "coming-from" / f"{page}.md").read_text().replace("-", "_")
    missing = {
        name
        for name, rule in framework.rules.items()
        if rule.state != "not needed" and name.rpartition(".")[2] not in page_text
    }
    assert missing - GENERAL == set()
