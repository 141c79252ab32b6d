"""Models that only the trainer can judge: each job stalls and continues once fixed.

| row | the model's folder | the trainer says |
|---|---|---|
| no-template | its tokenizer has no chat template | so |
| not-finite | a weight is NaN | which one |
| other-shape | its config is of another size than its weights | which ones do not fit |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from rl_contracts.spec.status import RLJobStatus
from rl_operator.state.attempt_records import REFUSED_EXIT_CODE
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    condition_of,
    taught_job,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
GOOD = "models/arithmetic/"
REFUSED = ("Refused", "ModelUnusable")
TRIES = 2
"""Enough to show that a refusal is no failure: the first one would end the job."""
FIXED = "not-finite"
"""Runs to its end once its model is fixed."""
Files = dict[str, bytes]


def without_template(files: Files) -> None:
    files.pop("chat_template.jinja", None)
    config = json.loads(files["tokenizer_config.json"])
    config.pop("chat_template", None)
    files["tokenizer_config.json"] = json.dumps(config).encode()


def not_finite(files: Files) -> None:
    """A number of all ones is NaN in each format that weights have."""
    weights = bytearray(files["model.safetensors"])
    weights[-4:] = b"\xff" * 4
    files["model.safetensors"] = bytes(weights)


def of_other_shape(files: Files) -> None:
    config = json.loads(files["config.json"])
    config["intermediate_size"] *= 2
    files["config.json"] = json.dumps(config).encode()


@dataclass(frozen=True)
class Row:
    """A folder with an unusable model, and what the job says of it."""

    name: str
    spoil: Callable[[Files], None]
    says: str


ROWS = [
    Row("no-template", without_template, "Its tokenizer has no chat template."),
    Row(FIXED, not_finite, "holds NaN"),
    Row("other-shape", of_other_shape, "(some are of other shapes): model.layers."),
]


def folder(lab: Lab, row: Row) -> str:
    return f"{lab.namespace}/refused/{row.name}"


def put_model(lab: Lab, row: Row, spoil: Callable[[Files], None] = lambda files: None) -> None:
    """Put the example's model into the row's folder, spoilt or whole."""
    with lab.stores() as stores:
        stats = stores.objects.list(GOOD)
        files = {stat.key.removeprefix(GOOD): stores.objects.get(stat.key) for stat in stats}
        spoil(files)
        for name, content in files.items():
            stores.objects.put(f"{folder(lab, row)}/{name}", content)


@pytest.fixture(scope="module")
def stalled(lab: Lab) -> Iterator[dict[str, RLJobStatus]]:
    """Each job's status once it has stalled; they stand side by side."""
    for row in ROWS:
        put_model(lab, row, row.spoil)
        lab.apply(
            taught_job(
                row.name,
                model__uri=f"s3://rl-data/{folder(lab, row)}",
                lifecycle__backoffLimit=0,
            )
        )
    yield {row.name: await_phase(lab, row.name, "Stalled") for row in ROWS}
    lab.delete("rljob", *(row.name for row in ROWS))
    with lab.stores() as stores:
        stores.objects.delete_prefix(f"{lab.namespace}/refused/")


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_unusable_model_stalls_with_field_value_and_remedy(
    lab: Lab, stalled: dict[str, RLJobStatus], row: Row
) -> None:
    status = stalled[row.name]
    condition = condition_of(status, "Stalled")
    assert (condition.status, condition.reason) == ("True", "ModelUnusable")
    assert condition_of(status, "Ready").message == condition.message
    assert condition.message.startswith(f"spec.model.uri = 's3://rl-data/{folder(lab, row)}': ")
    assert row.says in condition.message
    assert "Name a " in condition.message  # the remedy
    assert status.last_failure is not None
    assert status.last_failure.exit_code == REFUSED_EXIT_CODE
    assert attempts(status) == [REFUSED]
    assert status.failures == 0


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_refused_attempt_is_retried_and_not_counted(
    lab: Lab, stalled: dict[str, RLJobStatus], row: Row
) -> None:
    def refusals() -> int:
        return attempts(lab.job(row.name).status).count(REFUSED)

    until(lambda: refusals() >= TRIES, what="another refusal", seconds=COMPLETE_SECONDS)
    status = lab.job(row.name).status
    assert status.failures == 0
    assert status.phase != "Failed"


def test_job_trains_once_its_model_is_fixed(lab: Lab, stalled: dict[str, RLJobStatus]) -> None:
    put_model(lab, next(row for row in ROWS if row.name == FIXED))
    status = await_phase(lab, FIXED, "Succeeded")
    ends = attempts(status)
    assert ends[-1] == TRAINED
    assert set(ends[:-1]) == {REFUSED}
    assert status.failures == 0
    await_gone(lab, {row.name: lab.job(row.name).uid for row in ROWS})
