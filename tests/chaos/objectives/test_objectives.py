"""Runs without rewards on the cluster: demonstrations, then their model as a teacher."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl_console.report import Report, read_metrics, read_report
from rl_contracts.documents.run import Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.spec.status import RLJobStatus
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import split_uri
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job
from tests.waiting import HUNG_SECONDS

log = logging.getLogger(__name__)

STUDENT = "s3://rl-data/models/arithmetic"
CHATS = {"train": "datasets/objectives/train.jsonl", "test": "datasets/objectives/test.jsonl"}
RECORDS = 256
"""Of each at most."""
SUPERVISED, DISTILLED = "demonstrations", "distillation"
STEPS = 8
DISTILLED_PROMPTS = 32
"""Of a step. The models are close: over a few prompts, chance moves the loss more than a step."""
LEAST_FALL = 0.02
"""Nats for each token, of some 0.2: a third of what a plain loop over these records makes."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS + 2 * HUNG_SECONDS)


@dataclass(frozen=True)
class Ended:
    """A run that is complete."""

    run: Run
    status: RLJobStatus
    metrics: list[StepMetrics]
    report: Report
    final_model: str
    """``s3://`` URI."""


def complete(lab: Lab, manifest: dict[str, Any]) -> Ended:
    """Run a job to its end."""
    name = manifest["metadata"]["name"]
    lab.apply(manifest)
    lab.await_condition(name, "Complete", seconds=COMPLETE_SECONDS)
    status = lab.job(name).status
    with lab.stores() as stores:
        run = stores.runs.get(status.run_id)
        assert run is not None
        assert run.outcome is not None
        prefix = stores.run_prefix(run.id)
        return Ended(
            run=run,
            status=status,
            metrics=read_metrics(stores.objects, prefix),
            report=read_report(stores.objects, prefix),
            final_model=run.outcome.final_model,
        )


def put_chats(stores: Stores) -> None:
    """Some of the example's records, and held-out ones, as conversations with right answers."""
    for split, key in CHATS.items():
        lines = stores.objects.get(f"datasets/arithmetic/{split}.jsonl").decode().splitlines()
        chats = []
        for record in map(json.loads, lines[:RECORDS]):
            turns = [
                ("user", record["query"]),
                ("assistant", f"<answer>{record['answer']}</answer>"),
            ]
            messages = [{"role": role, "content": content} for role, content in turns]
            chats.append(json.dumps({"id": record["id"], "messages": messages}))
        stores.objects.put(key, "\n".join(chats).encode())


def source(name: str, key: str) -> dict[str, Any]:
    return {"name": name, "uri": f"s3://rl-data/{key}", "columns": {"messages": "messages"}}


def supervised() -> dict[str, Any]:
    """The example without what only sampling and rewards read."""
    unread = dict.fromkeys(("samplers", "reward", "weightSync"))
    return short_job(
        SUPERVISED,
        **unread,
        agent={"sampling": {"maxContextTokens": 64, "maxTokensPerTurn": 10}},
        algorithm={"objective": "SFT"},
        data__train=[source("chats", CHATS["train"])],
        data__validation=[source("held-out", CHATS["test"])],
        training__steps=STEPS,
        training__promptsPerStep=32,
        training__evaluation={},
    )


@pytest.fixture(scope="module")
def demonstrated(lab: Lab) -> Iterator[Ended]:
    """A run on conversations; what it wrote stays when its job goes."""
    with lab.stores() as stores:
        put_chats(stores)
    yield complete(lab, supervised())
    lab.delete("rljob", SUPERVISED)


def load(lab: Lab, uri: str, folder: Path) -> Any:
    """An exported model, as transformers loads it."""
    _, prefix = split_uri(uri)
    with lab.stores() as stores:
        for stored_object in stores.objects.list(prefix):
            stores.objects.get_file(stored_object.key, folder / Path(stored_object.key).name)
    assert AutoTokenizer.from_pretrained(folder, local_files_only=True).chat_template
    return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)


def test_demonstrations_are_trained_without_a_sampler(demonstrated: Ended) -> None:
    run, metrics = demonstrated.run, demonstrated.metrics
    assert run.step == STEPS
    assert run.policy is None
    assert [(metric.step, metric.rollouts) for metric in metrics] == [
        (n, 32) for n in range(1, STEPS + 1)
    ]
    before, after = (demonstrated.report.evaluations[at] for at in (0, -1))
    assert (before.step, after.step) == (0, STEPS)
    assert before.loss is not None
    assert after.loss is not None
    log.info("held-out loss %.4f before, %.4f after", before.loss, after.loss)
    assert after.loss < before.loss - LEAST_FALL
    assert run.evaluations == [after]
    (dataset,) = [
        dataset for dataset in demonstrated.status.datasets if dataset.split == "validation"
    ]
    assert (dataset.name, dataset.loss, dataset.accuracy) == (
        "held-out",
        round(after.loss, 4),
        None,
    )


def test_a_student_distils_the_fine_tuned_model(
    demonstrated: Ended, lab: Lab, tmp_path: Path
) -> None:
    teacher = demonstrated.final_model.rstrip("/")
    manifest = short_job(
        DISTILLED,
        model__uri=STUDENT,
        algorithm={"objective": "Distillation", "teacher": teacher, "groupSize": 2},
        training__steps=STEPS,
        training__promptsPerStep=DISTILLED_PROMPTS,
    )
    ended = complete(lab, manifest)
    losses = [metric.loss for metric in ended.metrics]
    assert len(losses) == STEPS
    assert [metric.kl for metric in ended.metrics] == losses
    assert 0 < min(losses[-2:]) < losses[0], losses
    assert 1 < ended.report.policy_versions <= STEPS + 1
    load(lab, ended.final_model, tmp_path)
    lab.delete("rljob", DISTILLED)
