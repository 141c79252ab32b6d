"""Results of the demo: figures, reward curve, final model and a few of its answers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from rl_console import tools
from rl_console.demo.settings import DemoSettings
from rl_console.report import Report, draw, read_metrics, read_report
from rl_contracts.stores.objects import Objects, split_uri

ANSWER_SECONDS = 180.0
NUM_QUESTIONS = 6


def fetch(objects: Objects, run_prefix: str, out: Path) -> tuple[Report, Path]:
    """Download report, metrics and final model; return the report and the model's folder.

    Writes ``reward.png`` and ``model/`` into ``out``.
    """
    report = read_report(objects, run_prefix)
    metrics = read_metrics(objects, run_prefix)
    steps, rewards = [each.step for each in metrics], [each.reward_mean for each in metrics]
    draw(steps, rewards, report.evaluations, out / "reward.png")
    return report, fetch_model(objects, report.final_model, out / "model")


def fetch_model(objects: Objects, uri: str, folder: Path) -> Path:
    """Download a model into ``folder``, replacing what the folder held."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bucket, key = split_uri(uri)
    source = objects.of_bucket(bucket)
    prefix = key.rstrip("/") + "/"
    for stored in source.list(prefix):
        source.get_file(
            stored.key, folder / stored.key.removeprefix(prefix), most=stored.size_bytes
        )
    return folder


def summary(report: Report, *, seconds: float) -> dict[str, Any]:
    """The contents of ``demo.json``."""
    return {
        "accuracyBefore": report.accuracy_before,
        "accuracyAfter": report.accuracy_after,
        "policyVersions": report.policy_versions,
        "steps": report.steps,
        "seconds": round(seconds, 1),
        "trainerSeconds": report.trainer_seconds,
        "maxStalenessSeen": report.max_staleness_seen,
        "logprobGapMean": report.logprob_gap_mean,
        "tokensPerSecond": report.tokens_per_second,
        "trainerWaitShare": report.trainer_wait_share,
        "finalModel": report.final_model,
    }


def write_summary(path: Path, values: dict[str, Any]) -> None:
    """Write ``demo.json``."""
    path.write_text(json.dumps(values, indent=2) + "\n")


def answers(settings: DemoSettings, model: Path, data: Path) -> list[tuple[str, str, str]]:
    """Ask the final model the first held-out questions.

    Returns question, expected answer and the model's response for each.

    Args:
        settings: names the folder of the script that asks.
        model: folder of the model.
        data: folder with ``test.jsonl``.
    """
    lines = (data / "test.jsonl").read_text().splitlines()[:NUM_QUESTIONS]
    asked = [json.loads(line) for line in lines]
    script = str(settings.example / "ask.py")
    command = [
        sys.executable,
        script,
        "--model",
        str(model),
        *(record["query"] for record in asked),
    ]
    printed = tools.run(command, seconds=ANSWER_SECONDS, doing="asking the final model")
    responses = [json.loads(line)["response"] for line in printed.splitlines()]
    return [
        (record["query"], record["answer"], response)
        for record, response in zip(asked, responses, strict=True)
    ]


def answers_table(answered: list[tuple[str, str, str]]) -> Table:
    """Questions, expected answers and the model's responses as a table."""
    title = "held-out questions, answered by the final model with transformers"
    rows = Table("question", "right", "answer", title=title)
    for row in answered:
        rows.add_row(*row)
    return rows
