"""The model card of an exported model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rl_contracts.documents.evaluation import EvaluationResult, prompt_count
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.context.job import Job

CARD_ROWS = 100
"""Of the last evaluations; ``report.json`` has all of them."""


def model_card(job: Job, *, step: int, evaluations: Sequence[EvaluationResult]) -> str:
    """A Markdown model card: where the model came from, by which settings, and how it scored."""
    spec = job.spec
    algorithm, training = spec.algorithm, spec.training
    rows = [
        f"| {evaluation.step} | {evaluation.version} | {evaluation.dataset} "
        f"| {evaluation.split} | {evaluation.temperature:g} | {prompt_count(evaluation)} "
        f"| {_number(evaluation.accuracy)} | {_number(evaluation.loss)} | "
        f"{', '.join(f'{k}: {rate:.3f}' for k, rate in evaluation.pass_at.items())} |"
        for evaluation in evaluations[-CARD_ROWS:]
    ]
    table = [
        "| step | policy version | data | split | temperature | prompts | accuracy | loss "
        "| pass@k |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
    ]
    sources = ", ".join(f"`{source.uri}`" for source in spec.data.by_split["train"])
    commit = f" at `{spec.model.revision}`" if spec.model.revision else ""
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        "tags: [reinforcement-learning]",
        "---",
        f"# {job.name}",
        "",
        f"Trained from `{spec.model.uri}`{commit} on {sources} by RLJob `{job.name}`, "
        f"run `{job.run}`.",
        "",
        f"{step} of {training.total_steps} steps of {training.prompts_per_step} "
        f"{_method(algorithm)}, learning rate {training.optimizer.learning_rate:g}, "
        f"{training.precision}.",
        *(["", *table] if rows else []),
        *["", "Settings:", "", "```json", json.dumps(settings(spec), indent=2), "```"],
    ]
    return "\n".join(lines) + "\n"


def _method(algorithm: Algorithm) -> str:
    if algorithm.supervised:
        return "records, supervised on the assistant's turns"
    method = f"{algorithm.estimator.kind} advantages, {algorithm.loss.kind} loss"
    if algorithm.unsampled:
        return f"stored groups of {algorithm.group_size} responses; {method}"
    return (
        f"prompts with {algorithm.group_size} responses each; {method}, staleness at most "
        f"{algorithm.off_policy.max_staleness}"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def settings(spec: RLJobSpec) -> dict[str, Any]:
    """What the manifest and its defaults say of the training."""
    return {
        name: section.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, section in (
            ("sampling", spec.agent.sampling),
            ("algorithm", spec.algorithm),
            ("training", spec.training),
        )
    }
