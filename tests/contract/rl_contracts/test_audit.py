"""The audit's command line on the real stores."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.audit.__main__ import main
from rl_contracts.documents import trained
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import Batch, BatchMember, BatchState, TrainedDigest
from rl_contracts.documents.run import Totals
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.samples.documents import RUN, a_batch, a_rollout, a_run, a_task

KEYS = [field.alias for field in StoreSettings.model_fields.values()]


@pytest.fixture
def folder(store_settings: StoreSettings, tmp_path: Path) -> Path:
    """The Secret as a pod mounts it."""
    for key, value in store_settings.model_dump(by_alias=True).items():
        if value:
            text = value if isinstance(value, str) else value.get_secret_value()
            (tmp_path / key).write_text(text)
    return tmp_path


@pytest.fixture
def batches(stores: Stores) -> list[Batch]:
    """A run of two steps in two epochs, and a batch of the first epoch that was never committed."""
    made: list[Batch] = []
    for step, epoch in ((1, 1), (2, 1), (2, 2)):
        task = a_task(len(made), attempt=1, queue=Queue.CONSUMED, state=TaskState.DONE)
        rollouts = [a_rollout(task, member) for member in range(2)]
        stores.rollouts.put(rollouts)
        stores.tasks.insert(
            [task.model_copy(update={"rollouts": [rollout.id for rollout in rollouts]})]
        )
        members = [
            BatchMember(rollout=rollouts[0].id, advantage=0.5),
            BatchMember(
                rollout=rollouts[1].id, advantage=0.0, token_advantages=pack_float32([0.25, -1])
            ),
        ]
        batch = a_batch(
            step,
            made[0].id if made else None,
            id=f"{RUN}.batch.{step:08d}.{epoch}",
            epoch=epoch,
            members=members,
            tasks=[task.id],
            state=BatchState.TRAINED if (step, epoch) != (2, 1) else BatchState.FORMED,
        )
        given = trained.sequences(batch, {rollout.id: rollout for rollout in rollouts})
        made.append(batch.model_copy(update={"digest": trained.rebuilt_digest(given, like=None)}))
    stores.batches.put(made)
    totals = Totals(rollouts_trained=4, tokens_trained=8)
    stores.runs.create(a_run(step=2, epoch=2, head_batch=made[2].id, totals=totals))
    return made


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    environ = {"RL_STORES_FOLDER": str(folder), "RL_RUN": RUN}
    code = main([*arguments], environ, stdin=io.StringIO(), stdout=out)
    return code, out.getvalue()


def as_json(folder: Path, *arguments: str) -> tuple[int, Any]:
    code, text = run(folder, *arguments, "--json")
    return code, json.loads(text)


def test_export_writes_what_steps_trained_in_their_order(
    folder: Path, batches: list[Batch]
) -> None:
    code, out = run(folder, "export", "--format", "atif", "--steps", "1:2")
    made = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(each["extra"]["trained_step"], each["extra"]["member"]) for each in made] == [
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert made[1]["steps"][1]["metrics"]["extra"]["advantages"] == [0.25, -1.0]


def test_export_writes_every_rollout_unless_steps_are_given(
    folder: Path, batches: list[Batch]
) -> None:
    made = [json.loads(line) for line in run(folder, "export")[1].splitlines()]
    assert [each["trainedStep"] for each in made] == [1, 1, None, None, 2, 2]
    assert made[0]["tokens"] == [5, 6, 7, 2]
    traces = run(folder, "export", "--format", "verifiers", "--steps", "2")[1].splitlines()
    assert [json.loads(line)["info"]["trained_step"] for line in traces] == [2, 2]


def test_audit_of_a_batch_shows_exactly_what_was_trained(
    folder: Path, batches: list[Batch]
) -> None:
    code, report = as_json(folder, "batch", "--step", "2")
    assert code == 0
    assert (report["batch"], report["epoch"], report["onLineage"]) == (batches[2].id, 2, True)
    assert report["format"] == "rl-operator/audit-batch/1"
    assert batches[2].digest is not None
    assert report["digest"]["verdict"] == "match"
    assert (
        report["digest"]["trained"] == report["digest"]["rebuilt"] == batches[2].digest.model_dump()
    )
    first, second = report["sequences"]
    assert first["tokens"] == [5, 6, 7, 2]
    assert first["mask"] == [0, 0, 1, 1]
    assert (first["advantages"], first["weights"]) == ([0.5, 0.5], [1.0, 1.0])
    assert second["advantages"] == [0.25, -1.0]
    assert second["logprobs"] == [0.0, 0.0, -0.5, -0.25]
    assert (first["example"], first["staleness"]) == ("e2", 1)


def test_audit_of_a_batch_as_text(folder: Path, batches: list[Batch]) -> None:
    code, text = run(folder, "batch", "--step", "1")
    assert code == 0
    assert "verdict   match" in text
    assert "#0 TRAINED [2, 4) advantage 0.5 weight 1\n    tokens 7 2\n" in text
    assert "#1 TRAINED [2, 3) advantage 0.25 weight 1" in text
    assert "#1 TRAINED [3, 4) advantage -1 weight 1" in text
    assert "#0 context [0, 2)\n    tokens 5 6\n" in text
    code, short = run(folder, "batch", "--step", "1", "--summary")
    assert code == 0
    assert text.startswith(short)
    assert "TRAINED" not in short


def test_a_batch_of_another_epoch_is_shown_as_such(folder: Path, batches: list[Batch]) -> None:
    code, report = as_json(folder, "batch", "--step", "2", "--epoch", "1")
    assert (code, report["batch"], report["onLineage"]) == (0, batches[1].id, False)


def test_a_changed_document_is_a_mismatch_and_a_missing_one_is_named(
    stores: Stores, folder: Path, batches: list[Batch]
) -> None:
    name = batches[0].members[1].rollout
    rollout = stores.rollouts.get([name])[name]
    stores.rollouts.put([rollout.model_copy(update={"tokens": pack_int32([5, 6, 7, 3])})])
    code, report = as_json(folder, "batch", "--step", "1")
    assert (code, report["digest"]["verdict"]) == (1, "mismatch")
    stores.rollouts.delete(name)
    code, report = as_json(folder, "batch", "--step", "1")
    assert (code, report["digest"]["verdict"]) == (1, "unrebuildable")
    assert name in report["digest"]["problem"]


def change_token(stores: Stores, batch: Batch) -> None:
    """Behind the back of the summary, which is what the trainer plans from."""
    tokens = {"$set": {"tokens": pack_int32([5, 6, 7, 3])}}
    stores.mongo.collection("rollouts").update_one({"_id": batch.members[1].rollout}, tokens)


def change_member(**changes: Any) -> Callable[[Stores, Batch], None]:
    def change(stores: Stores, batch: Batch) -> None:
        members = [batch.members[0].model_copy(update=changes), *batch.members[1:]]
        stores.batches.put([batch.model_copy(update={"members": members})])

    return change


CHANGES: dict[str, Callable[[Stores, Batch], None]] = {
    "a token": change_token,
    "an advantage": change_member(advantage=0.50000006),
    "a token's advantage": change_member(token_advantages=pack_float32([0.5, 0.50000006])),
    "a weight": change_member(weight=0.99999994),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("number", [1, 2])
def test_a_change_of_what_was_trained_is_a_mismatch_in_either_format(
    stores: Stores, folder: Path, batches: list[Batch], change: Any, number: int
) -> None:
    batch = batches[0]
    rollouts = stores.rollouts.get([member.rollout for member in batch.members])
    recorded = TrainedDigest(
        format=f"rl-operator/trained/{number}", sha256="", sequences=0, tokens=0, generated=0
    )
    digest = trained.rebuilt_digest(trained.sequences(batch, rollouts), like=recorded)
    assert digest.format == recorded.format
    batch = batch.model_copy(update={"digest": digest})
    stores.batches.put([batch])
    code, report = as_json(folder, "batch", "--step", "1")
    assert (code, report["digest"]["verdict"]) == (0, "match")
    change(stores, batch)
    code, report = as_json(folder, "batch", "--step", "1")
    assert (code, report["digest"]["verdict"]) == (1, "mismatch")


def test_audit_of_a_run_and_of_a_rollout(
    stores: Stores, folder: Path, batches: list[Batch]
) -> None:
    code, report = as_json(folder, "run")
    assert (code, report["good"]) == (0, True)
    assert [finding["what"][:16] for finding in report["findings"]] == ["batches do not l"]
    assert [stretch["epoch"] for stretch in report["lineage"]] == [1, 2]
    stores.rollouts.put([a_rollout(a_task(99))])
    code, text = run(folder, "run")
    assert code == 1
    assert "1 × rollouts belong to no task" in text
    code, text = run(folder, "rollout", "--id", batches[0].members[0].rollout)
    assert code == 0
    assert "chosen by its task (done, consumed)" in text
    assert "GENERATED [2, 4)\n    tokens 7 2\n    logprobs -0.5 -0.25" in text


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        (["batch", "--step", "7"], 1, "no batch of step 7; the run is at step 2"),
        (["batch", "--step", "1", "--run", "other"], 1, "run other does not exist"),
        (["rollout", "--id", "x"], 1, "rollout x does not exist"),
        (["retention", "--bounds", '{"rollout": {}}', "--dry-run"], 2, "rollout: Extra inputs"),
        (
            ["retention", "--bounds", '{"policies": {"maxBytes": 9}}', "--dry-run"],
            2,
            "policies are objects in the bucket",
        ),
        (["run", "--stores-folder", "/nowhere"], 2, "is not a folder"),
        (["run", "--mongo-address", "127.0.0.1:9", "--patience", "0.1"], 3, "did not answer"),
    ],
)
@pytest.mark.usefixtures("batches")
def test_audit_errors_have_exit_codes_and_messages(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, match: str
) -> None:
    assert run(folder, *arguments)[0] == code
    assert match in capsys.readouterr().err


def test_migrating_a_run_that_is_alive_is_refused(
    stores: Stores, folder: Path, batches: list[Batch], capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = as_json(folder, "migrate", "--dry-run")
    assert (code, report["older"], report["versions"]["batches"]) == (0, 0, {"1": len(batches)})
    assert run(folder, "migrate", "--write")[0] == 0
    stores.runs.heartbeat(RUN, epoch=2, phase="training")
    assert run(folder, "migrate", "--write")[0] == 1
    assert "suspend the job" in capsys.readouterr().err


def test_retention_command_plans_and_deletes(
    stores: Stores, folder: Path, batches: list[Batch]
) -> None:
    bounds = ["--bounds", '{"batches": {"maxCount": 1}, "rollouts": {"maxCount": 1}}']
    code, text = run(folder, "retention", *bounds, "--dry-run")
    assert code == 0
    assert "would be deleted" in text
    code, report = as_json(folder, "retention", *bounds, "--dry-run")
    assert (code, report["batches"], report["held"]["batches"]) == (0, [batches[1].id], 1)
    assert len(stores.batches.of_run(RUN)) == 3
    code, text = run(folder, "retention", *bounds, "--write")
    assert code == 0
    assert [batch.id for batch in stores.batches.of_run(RUN)] == [batches[0].id, batches[2].id]
    assert as_json(folder, "run")[1]["good"]
    assert as_json(folder, "batch", "--step", "1")[1]["digest"]["verdict"] == "match"
