"""Options that nothing of the job reads are refused by name; beside what reads them they pass."""

from __future__ import annotations

from typing import Any

import pytest

from rl_operator.validation.refusals import of_spec
from tests.unit.rl_operator.builders import a_spec

SOURCE = {"name": "held-out", "uri": "s3://abc/a.jsonl"}
TALK = {"train": [SOURCE | {"columns": {"scenario": "turns"}}]}
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "a project without a tracker": (
        {"training": {"steps": 3, "tracking": {"project": "p", "tensorBoard": True}}},
        [("training.tracking.project", "p")],
    ),
    "a tracker's Secret without a tracker": (
        {"training": {"steps": 3, "tracking": {"secretName": "keys"}}},
        [("training.tracking.secretName", "keys")],
    ),
    "a team and tags without W&B": (
        {
            "training": {
                "steps": 3,
                "tracking": {"entity": "e", "tags": ["a"], "mlflow": "https://m", "runName": "x"},
            }
        },
        [("training.tracking.entity", "e"), ("training.tracking.tags", '["a"]')],
    ),
    "a limit of prompts that the context has anyway": (
        {
            "agent": {"sampling": {"maxPromptTokens": 8192, "maxContextTokens": 8192}},
            "training": {"steps": 3},
        },
        [("agent.sampling.maxPromptTokens", "8192")],
    ),
    "a limit of prompts below the context's": (
        {
            "agent": {"sampling": {"maxPromptTokens": 1024}},
            "training": {"steps": 3},
        },
        [],
    ),
    "stop texts of a program, which names its own": (
        {
            "agent": {
                "kind": "Program",
                "program": {
                    "runsIn": "Sidecar",
                    "command": ["python", "solve.py"],
                    "onFailure": "InfrastructureError",
                },
                "sampling": {"stop": ["Observation:"]},
            },
            "training": {"steps": 3},
        },
        [("agent.sampling.stop", '["Observation:"]')],
    ),
    "a project of a tracker": (
        {"training": {"steps": 3, "tracking": {"project": "p", "wandb": "Offline"}}},
        [],
    ),
    "an evaluation without data": (
        {
            "data": {"train": [SOURCE]},
            "training": {
                "steps": 3,
                "evaluation": {"temperatures": [0.6], "samplesPerPrompt": 4, "timeoutSeconds": 99},
            },
        },
        [
            ("training.evaluation.temperatures", "[0.6]"),
            ("training.evaluation.samplesPerPrompt", "4"),
            ("training.evaluation.timeoutSeconds", "99"),
        ],
    ),
    "fields of records without code that reads them": (
        {"data": {"train": [SOURCE | {"columns": {"fields": ["unit"]}}]}, "training": {"steps": 3}},
        [("data.train[0].columns.fields", '["unit"]')],
    ),
    "fields of records for a scorer": (
        {
            "data": {"train": [SOURCE | {"columns": {"fields": ["unit"]}}]},
            "reward": {"scorers": [{"kind": "Mine", "entryPoint": "theirs:f"}]},
            "training": {"steps": 3},
            "code": {"image": "x:1"},
        },
        [],
    ),
    "an evaluation of test data": (
        {
            "data": {"train": [SOURCE], "test": [SOURCE]},
            "training": {"steps": 3, "evaluation": {"temperatures": [0.6]}},
        },
        [],
    ),
    "a hub that nothing comes from": (
        {
            "data": {"train": [SOURCE], "hub": {"endpoint": "https://mirror.example"}},
            "training": {"steps": 3},
        },
        [("data.hub.endpoint", "https://mirror.example")],
    ),
    "a hub that a source comes from": (
        {
            "data": {
                "train": [SOURCE | {"uri": "hf://openai/gsm8k"}],
                "hub": {"endpoint": "https://mirror.example"},
            },
            "training": {"steps": 3},
        },
        [],
    ),
    "options of tools in a conversation without tools": (
        {
            "data": TALK,
            "training": {"steps": 3},
            "agent": {
                "kind": "Conversation",
                "toolCallFormat": "Qwen",
                "maxToolResultCharacters": 99,
                "context": {"overflow": "DiscardTools"},
            },
        },
        [
            ("agent.toolCallFormat", "Qwen"),
            ("agent.maxToolResultCharacters", "99"),
            ("agent.context.overflow", "DiscardTools"),
        ],
    ),
    "options of tools in a conversation with one": (
        {
            "data": TALK,
            "training": {"steps": 3},
            "agent": {
                "kind": "Conversation",
                "toolCallFormat": "Qwen",
                "tools": [{"entryPoint": "mine:tool"}],
            },
        },
        [],
    ),
    "options of other actions in an environment": (
        {
            "training": {"steps": 3},
            "agent": {
                "kind": "Environment",
                "environment": {"url": "http://e", "action": "Json", "textField": "word"},
                "toolCallFormat": "Qwen",
                "maxToolResultCharacters": 99,
                "context": {"overflow": "DiscardTools"},
            },
        },
        [
            ("agent.environment.textField", "word"),
            ("agent.toolCallFormat", "Qwen"),
            ("agent.context.overflow", "DiscardTools"),
        ],
    ),
    "options of tool calls in an environment": (
        {
            "data": {"train": [SOURCE | {"columns": {"fields": ["seed"]}}]},
            "training": {"steps": 3},
            "agent": {
                "kind": "Environment",
                "environment": {"url": "http://e", "action": "Tool"},
                "toolCallFormat": "Qwen",
                "context": {"overflow": "DiscardTools"},
            },
        },
        [],
    ),
    "shaping by turns of a single turn": (
        {"algorithm": {"shaping": {"capFaultyTurns": True, "efficientRewarding": 0.5}}},
        [
            ("algorithm.shaping.capFaultyTurns", "true"),
            ("algorithm.shaping.efficientRewarding", "0.5"),
        ],
    ),
    "cooldowns of a pool that does not scale": (
        {
            "samplers": [
                {"name": "main", "template": {"autoscaling": {"scaleUpCooldownSeconds": 5}}}
            ]
        },
        [("samplers[0].template.autoscaling.scaleUpCooldownSeconds", "5")],
    ),
}


@pytest.mark.parametrize(("sections", "refused"), CASES.values(), ids=CASES)
def test_options_that_nothing_reads_are_refused(
    sections: dict[str, Any], refused: list[tuple[str, str]]
) -> None:
    refusals = list(of_spec(a_spec(**sections)))
    options = [(refusal.field.removeprefix("spec."), refusal.value) for refusal in refusals]
    assert options == refused
    for refusal in refusals:
        assert refusal.reason == "OptionUnused"
        assert refusal.remedy == "Remove it."
