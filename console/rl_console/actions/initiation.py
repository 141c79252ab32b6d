"""A first manifest of a job, from options and answers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from rl_console.errors import UsageError
from rl_console.manifests.checks import problems
from rl_console.output import Output, document
from rl_contracts.spec.resources import API_VERSION
from rl_contracts.spec.reward import BUILT_IN_SCORERS

GPU = "nvidia.com/gpu"
QUESTIONS = {
    "name": "Name of the job",
    "model": "Model (hf://org/name or s3://bucket/folder)",
    "train": "Training data (hf://org/name/config or s3://bucket/file.jsonl)",
    "query": "Column of the question",
    "scorer": f"Scorer ({', '.join(BUILT_IN_SCORERS)})",
}
DEFAULTS = {"query": "query", "scorer": "Math"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a first manifest depends on; empty texts are not known yet."""

    name: str = ""
    namespace: str = ""
    model: str = ""
    train: str = ""
    validation: str = ""
    query: str = ""
    scorer: str = ""
    prompt: str = ""
    steps: int = 100
    samplers: int = 1
    gpus: int = 1
    sampler_gpus: int = 1
    lora_rank: int | None = None


GOOD = Answers(
    name="job",
    model="hf://org/name",
    train="s3://bucket/file.jsonl",
    query=DEFAULTS["query"],
    scorer=DEFAULTS["scorer"],
)
"""Answers that are valid together: with one of them replaced, that one is at fault."""


def ask(answers: Answers) -> Answers:
    """Ask for what is missing on a terminal, and check each answer; elsewhere defaults are used.

    Raises:
        UsageError: something without a default is missing, and nobody can be asked.
    """
    missing = [field for field in QUESTIONS if not getattr(answers, field)]
    if sys.stdin.isatty():
        given: dict[str, Any] = {
            field: typer.prompt(
                QUESTIONS[field],
                default=DEFAULTS.get(field),
                value_proc=functools.partial(_checked, field),
                err=True,
            )
            for field in missing
        }
        return replace(answers, **given)
    needed = [field for field in missing if field not in DEFAULTS]
    if needed:
        options = ", ".join("NAME" if field == "name" else f"--{field}" for field in needed)
        raise UsageError(f"{options} must be given", remedy="See `kubectl rl init --help`")
    defaults: dict[str, Any] = {field: DEFAULTS[field] for field in missing}
    return replace(answers, **defaults)


def _checked(field: str, answer: str) -> str:
    """An answer without blanks around it; typer asks again after a BadParameter."""
    given: dict[str, Any] = {field: answer.strip()}
    if refusals := problems(_manifest(replace(GOOD, **given))):
        raise typer.BadParameter(str(refusals[0]))
    return answer.strip()


def manifest_of(answers: Answers) -> dict[str, Any]:
    """The manifest; raises UsageError with the first problem if it would be refused."""
    manifest = _manifest(answers)
    refusals = problems(manifest)
    if refusals:
        raise UsageError(f"the job would be refused: {refusals[0]}")
    return manifest


def _manifest(answers: Answers) -> dict[str, Any]:
    metadata = {"name": answers.name, "namespace": answers.namespace}
    return {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": _spec(answers),
    }


def _spec(answers: Answers) -> dict[str, Any]:
    data = {"train": [_source("train", answers.train, answers)]}
    if answers.validation:
        data["validation"] = [_source("validation", answers.validation, answers)]
    training: dict[str, Any] = {"steps": answers.steps}
    if answers.validation:
        training["evaluation"] = {"everySteps": max(1, answers.steps // 2)}
    if answers.lora_rank is not None:
        training["lora"] = {"rank": answers.lora_rank}
    return {
        "model": {"uri": answers.model},
        "data": data,
        **({"agent": {"systemPrompt": answers.prompt}} if answers.prompt else {}),
        "reward": {"scorers": [{"kind": answers.scorer}]},
        "training": training,
        "trainer": _resources(answers.gpus),
        "samplers": [
            {
                "name": "main",
                "template": {
                    **_resources(answers.sampler_gpus),
                    "autoscaling": {"minReplicas": answers.samplers},
                },
            }
        ],
    }


def _source(name: str, uri: str, answers: Answers) -> dict[str, Any]:
    columns = {} if answers.query == DEFAULTS["query"] else {"columns": {"query": answers.query}}
    return {"name": name, "uri": uri, **columns}


def _resources(gpus: int) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: gpus}}} if gpus else {}


def write(manifest: Mapping[str, Any], out: Path | None) -> None:
    """Print the manifest, or write it to a file that does not exist yet."""
    text = document(manifest, Output.YAML)
    if out is None:
        print(text)
        return
    try:
        with out.open("x") as opened:
            opened.write(text + "\n")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from error
    print(f"{out} is written: `kubectl rl submit -f {out}` creates the job", file=sys.stderr)
