"""The scorer that runs tests: real sandbox, and a real sampler that uses it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_contracts import env
from rl_sampler.sandbox.client import Sandbox
from rl_sampler.scorers.code import CodeScorer
from rl_sampler.scorers.response import Response
from tests.contract.rl_sampler.episodes.several_turns import END_ID
from tests.contract.rl_sampler.pods import MakePod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import Tensors, tensors
from tests.contract.rl_sampler.tools.sandboxes import serving
from tests.waiting import until

ADD = "def add(a, b):\n    return a + b\n"
ASSERTS = "assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'"
CASES = json.dumps([{"input": "1 2\n", "output": "3"}, {"input": "20 22", "output": "42\n"}])
SEVEN_ID = ord("7") - ord("!")
"""Of the byte: the alphabet of byte tokenizers begins there."""
SUM = "print(sum(map(int, input().split())))"
COUNT = "import sys\nprint(len(sys.stdin.read().split()))"
LONG = 3_000_000
"""Lines of input; with their ends they have 9 MB in the sandbox's JSON."""
MANY_ASSERTS = "assert add(1, 2) == 3\n" * 100_000
"""Compiling them takes more memory than the program may have."""
PYTHON = {"reward": {"scorers": [{"kind": "Code"}], "answerSchema": "Raw"}}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    socket_path = tmp_path_factory.mktemp("sandbox") / "programs"
    with serving(socket_path):
        yield socket_path


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        (ADD, ASSERTS, 1),
        (f"So:\n```python\n{ADD}```\nDone.", ASSERTS, 1),
        (ADD.replace("+", "-"), ASSERTS, 0),
        (ADD + "raise SystemExit(0)", ASSERTS, 0),
        (ADD + "import os\nos._exit(0)", ASSERTS, 0),
        (ADD + "while True:\n    pass", ASSERTS, 0),
        ("def add(", ASSERTS, 0),
        ("", ASSERTS, 0),
        (None, ASSERTS, 0),
        (SUM, CASES, 1),
        (SUM + "\nimport warnings\nwarnings.warn('beside')", CASES, 1),
        ("input()\nprint(3)", CASES, 0),
        (SUM + "\nraise ValueError", CASES, 0),
        (COUNT, json.dumps([{"input": "1\n" * LONG, "output": str(LONG)}]), 1),
        (ADD, f"{ASSERTS}\n{'#' * 3 * LONG}", 1),
        (ADD, MANY_ASSERTS, 1),
        (ADD, f"{MANY_ASSERTS}assert add(1, 1) == 3", 0),
    ],
)
def test_code_scorer_gives_1_only_where_all_tests_pass(
    path: Path, answer: str | None, reference: str, value: float
) -> None:
    scorer = CodeScorer(Sandbox(path, seconds=2, megabytes=256))
    response = Response(text=answer or "", answer=answer, reference=reference)
    assert asyncio.run(scorer(response)) == value


def sevens() -> Tensors:
    """Weights that say 7 or end the turn, either about half of the time, whatever was said."""
    weights = tensors(0)
    for name, tensor in weights.items():
        tensor[:] = 1 if "norm" in name else 0
    weights["model.embed_tokens.weight"][:] = 0.05
    weights["model.embed_tokens.weight"][[SEVEN_ID, END_ID]] = 0.4
    return weights


def test_sampler_rewards_programs_by_the_records_tests(
    trainer: ScriptedTrainer, make_pod: MakePod, path: Path
) -> None:
    pod = make_pod(**PYTHON)
    pod.environment[env.SANDBOX_SOCKET] = str(path)
    assert pod.stage().returncode == 0
    trainer.publish(weights=sevens())
    pod.serve()
    tasks = trainer.insert(2, group_size=8, answer="assert True")
    until(lambda: trainer.all_done(tasks), what="the groups")
    rollouts = trainer.chosen(tasks)
    assert {rollout.text.replace("7", "") for rollout in rollouts} == {""}
    for rollout in rollouts:
        assert [part.scorer for part in rollout.parts] == ["Code"]
        assert rollout.reward == float(rollout.text != "")
    document = pod.wait_document(lambda document: True, what="the registration")
    assert "Code" in document.scorers
