"""The example of reasoning-gym with the published package: its data, and its scorer in `code`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rl_contracts.documents.datasets.records import parse_record
from rl_contracts.spec.data import Columns
from tests.chaos.rl_sampler.gateway.environments import python_of

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
EXAMPLE = ROOT / "examples" / "reasoning-gym"
TASKS = "leg_counting,chain_sum,simple_equations,word_sorting"
JUDGE = """\
import json, sys, types
extension = types.ModuleType("rl_sampler.extension")
extension.Response = object
sys.modules["rl_sampler"], sys.modules["rl_sampler.extension"] = types.ModuleType("a"), extension
from reasoning_gym_scorer import verified
for line in open(sys.argv[1]):
    record = json.loads(line)
    fields = {"task": record["task"], "entry": record["entry"]}
    answers = [record["answer"], "surely wrong", None]
    print(json.dumps([
        verified(types.SimpleNamespace(answer=answer, fields=fields)) for answer in answers
    ]))
"""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reasoning_gym_is_data_and_scorer(tmp_path: Path) -> None:
    python, file = python_of("reasoning-gym", folder=HERE), tmp_path / "train.jsonl"
    run(python, "make.py", "--tasks", TASKS, "--number", "5", "--out", str(file))
    records: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(records) == 20
    columns = Columns.model_validate({"fields": ["task", "entry"]})
    for record in records:
        example = parse_record(
            record, columns=columns, place="line 1", compares=lambda scorer: False
        )
        assert json.loads(example.fields)["task"] in TASKS
    values = [json.loads(line) for line in run(python, "-c", JUDGE, str(file)).splitlines()]
    assert len(values) == 20
    for right, wrong, none in values:
        assert (right, none) == (1.0, 0.0)
        assert wrong < 0.5


def test_a_task_whose_entries_json_cannot_keep_is_refused(tmp_path: Path) -> None:
    python = python_of("reasoning-gym", folder=HERE)
    command = [python, "make.py", "--tasks", "rush_hour", "--out", str(tmp_path / "a.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLE, check=False)
    assert done.returncode != 0
    assert "rush_hour: its" in done.stderr
