"""Inputs that only the programs can judge: the job stalls with field, value and remedy, quietly.

All bad jobs stand side by side. A fixed job continues by itself, and one runs to its end.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rl_contracts.spec.status import Condition
from tests.cluster.lab import Lab, command_line
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS, throughout

BUCKET = "s3://rl-data"
GOOD_DATA = f"{BUCKET}/datasets/arithmetic/train.jsonl"
COMPLETE_SECONDS = 2 * HUNG_SECONDS
QUIET_SECONDS = 15.0
SETTLED_SECONDS = 5.0
WRONG = "wrong"
LASTING = "bad-scorer"
"""Runs to its end once its cause is fixed."""


@dataclass(frozen=True)
class Bad:
    """A job that cannot continue, and how its cause is fixed."""

    name: str
    reason: str
    says: tuple[str, ...]
    fix: Callable[[Lab], None]
    changes: dict[str, Any] = field(default_factory=dict)
    secret: dict[str, str] = field(default_factory=dict)
    """Keys of the job's own stores' Secret that are wrong."""


def copy_model(lab: Lab) -> None:
    with lab.stores() as stores:
        for stored in stores.objects.list("models/arithmetic/"):
            name = stored.key.rsplit("/", 1)[1]
            stores.objects.put(f"{lab.namespace}/late-model/{name}", stores.objects.get(stored.key))


def put_data(name: str) -> Callable[[Lab], None]:
    def put(lab: Lab) -> None:
        with lab.stores() as stores:
            good = stores.objects.get("datasets/arithmetic/train.jsonl")
            stores.objects.put(f"{lab.namespace}/{name}", good)

    return put


def fix_secret(name: str) -> Callable[[Lab], None]:
    def fix(lab: Lab) -> None:
        make_secret(lab, name, {})

    return fix


def fix_scorer(lab: Lab) -> None:
    patch = {"spec": {"reward": {"scorers": [{"kind": "ExactMatch"}]}}}
    lab.kubectl("patch", "rljob", "bad-scorer", "--type=merge", "-p", json.dumps(patch))


BAD = [
    Bad(
        "bad-model",
        "ModelNotFound",
        ("spec.model.uri", f"{BUCKET}/rl-test/late-model"),
        copy_model,
        {"model__uri": f"{BUCKET}/rl-test/late-model"},
    ),
    Bad(
        "bad-data",
        "DatasetNotFound",
        ("spec.data.train[0].uri", f"{BUCKET}/rl-test/late.jsonl"),
        put_data("late.jsonl"),
        {"data__train__0__uri": f"{BUCKET}/rl-test/late.jsonl"},
    ),
    Bad(
        "bad-line",
        "DatasetMalformed",
        ("spec.data.train[0].uri", "line 3", "not JSON"),
        put_data("malformed.jsonl"),
        {"data__train__0__uri": f"{BUCKET}/rl-test/malformed.jsonl"},
    ),
    Bad(
        "bad-keys",
        "BucketAccessDenied",
        ("spec.storage.secretName", "credentials"),
        fix_secret("bad-keys"),
        secret={"s3SecretKey": WRONG},
    ),
    Bad(
        "bad-bucket",
        "BucketUnreachable",
        ("spec.storage.secretName", "bucket did not answer"),
        fix_secret("bad-bucket"),
        secret={"s3Endpoint": "http://nowhere.rl-system.svc:9000"},
    ),
    Bad(
        "bad-store",
        "StateStoreUnreachable",
        ("spec.storage.secretName", "document store did not answer"),
        fix_secret("bad-store"),
        secret={"mongoUri": "mongodb://nowhere.rl-system.svc:27017/"},
    ),
    Bad(
        "bad-scorer",
        "ScorerUnknown",
        ("spec.reward.scorers[0].kind", "Telepathy", "ExactMatch"),
        fix_scorer,
        {"reward__scorers": [{"kind": "Telepathy"}], "lifecycle__dataPolicy": "Delete"},
    ),
]
WITHOUT_PODS = [bad.name for bad in BAD if bad.name != LASTING]


def make_secret(lab: Lab, name: str, wrong: dict[str, str]) -> None:
    """A stores' Secret of the job's own, like the namespace's but for some keys."""
    values = {**lab.cluster.secret(lab.namespace, "rl-operator-stores"), **wrong}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    lab.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded})


def remove_leftovers(lab: Lab) -> None:
    with lab.stores() as stores:
        stores.objects.delete_prefix(f"{lab.namespace}/")


@pytest.fixture(scope="module")
def stalled(lab: Lab) -> Iterator[dict[str, Condition]]:
    """Each bad job's Stalled condition."""
    remove_leftovers(lab)
    with lab.stores() as stores:
        lines = stores.objects.get("datasets/arithmetic/train.jsonl").splitlines()
        lines[2] = lines[2][:-5]
        stores.objects.put(f"{lab.namespace}/malformed.jsonl", b"\n".join(lines))
    for bad in BAD:
        changes = dict(bad.changes)
        if bad.secret:
            make_secret(lab, bad.name, bad.secret)
            changes["storage__secretName"] = bad.name
        lab.apply(short_job(bad.name, **changes))
    yield {bad.name: lab.await_condition(bad.name, "Stalled") for bad in BAD}
    names = [bad.name for bad in BAD]
    lab.delete("rljob", *names)
    lab.delete("secret", *names)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("bad", BAD, ids=[bad.name for bad in BAD])
def test_stalled_jobs_name_field_value_and_remedy(bad: Bad, stalled: dict[str, Condition]) -> None:
    condition = stalled[bad.name]
    assert condition.reason == bad.reason
    for text in bad.says:
        assert text in condition.message
    assert WRONG not in condition.message


def test_stalled_jobs_start_nothing_and_write_nothing(
    lab: Lab, stalled: dict[str, Condition]
) -> None:
    def seen() -> dict[str, str]:
        jobs = lab.get("rljobs")["items"]
        return {job["metadata"]["resourceVersion"]: json.dumps(job["status"]) for job in jobs}

    def settled() -> bool:
        before = seen()
        throughout(lambda: "", seconds=SETTLED_SECONDS)
        return before == seen()

    until(settled, what="the stalled jobs to settle")
    before = seen()

    def written() -> str:
        after = seen()
        pairs = [(before.get(version, ""), after.get(version, "")) for version in before | after]
        return "\n".join(f"{old}\n→ {new}" for old, new in pairs if old != new)

    throughout(written, seconds=QUIET_SECONDS, interval=3)
    for name in WITHOUT_PODS:
        assert lab.pods(name) == []
    assert all(lab.job(bad.name).status.attempt == 0 for bad in BAD)


def test_following_a_stalled_job_ends_with_what_to_do(
    lab: Lab, stalled: dict[str, Condition]
) -> None:
    name = "bad-model"
    command = command_line(lab.tools, "follow", name, "-n", lab.namespace, "--patience", "1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG_SECONDS)
    assert done.returncode == 1
    assert f"Stalled=True, {stalled[name].reason}: {stalled[name].message}" in done.stderr
    assert "Remedy:" in done.stderr


@pytest.fixture(scope="module")
def recovered(lab: Lab, stalled: dict[str, Condition]) -> set[str]:
    """Names of jobs that continued after all causes were fixed; then all but one are deleted."""
    reasons: set[str] = set()

    def look() -> bool:
        for bad in BAD:
            if bad.name in reasons or not goes_on(lab, bad.name):
                continue
            reasons.add(bad.name)
            if bad.name != LASTING:
                lab.delete("rljob", bad.name)
        return len(reasons) == len(BAD)

    for bad in BAD:
        bad.fix(lab)
    until(look, what="all jobs to go on", seen=lambda: sorted(reasons))
    return reasons


def goes_on(lab: Lab, name: str) -> bool:
    condition = lab.condition(name, "Stalled")
    return condition is None or condition.status != "True"


def test_stalled_jobs_continue_once_fixed(recovered: set[str]) -> None:
    assert recovered == {bad.name for bad in BAD}


@pytest.mark.timeout(3000)
def test_a_fixed_job_completes_and_its_data_is_deleted_with_it(
    lab: Lab, recovered: set[str]
) -> None:
    name = LASTING
    lab.await_condition(name, "Complete", seconds=COMPLETE_SECONDS)
    run = lab.job(name).uid
    with lab.stores() as stores:
        assert stores.runs.get(run) is not None
        assert stores.objects.list(stores.run_prefix(run))
    lab.delete("rljob", name)
    with lab.stores() as stores:
        assert stores.runs.get(run) is None
        assert stores.batches.of_run(run) == []
        assert stores.rollouts.of_run(run) == []
        assert stores.objects.list(stores.run_prefix(run)) == []
