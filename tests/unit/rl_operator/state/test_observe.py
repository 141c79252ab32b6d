"""What of all that bears a job's name is taken for the job's."""

from __future__ import annotations

from typing import Any

from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Key
from rl_operator.state import observe
from tests.samples.manifests import a_job
from tests.unit.rl_operator.model_api import NAMESPACE, ModelApi


def owner(uid: str) -> list[dict[str, Any]]:
    return [{"kind": kinds.RLJOB.name, "name": "job", "uid": uid, "controller": True}]


def test_objects_of_other_owners_with_our_labels_are_ignored() -> None:
    api = ModelApi()
    uid = api.put(kinds.RLJOB, "job", spec=a_job()["spec"])["metadata"]["uid"]
    labels = {names.JOB_LABEL: "job", names.ATTEMPT_LABEL: "1"}
    owners = {"own": owner(uid), "former": owner("gone"), "copied": []}
    for name, owned in owners.items():
        metadata = {"labels": labels, "ownerReferences": owned}
        api.put(kinds.SAMPLER_POOL, name, metadata=metadata, spec={"job": "job"})
        api.put(kinds.PYTORCH_JOB, name, metadata=metadata, spec={})
    snapshot = observe.job_snapshot(api, Key(kinds.RLJOB.name, NAMESPACE, "job"))
    assert snapshot is not None
    assert [pool.meta.name for pool in snapshot.pools] == ["own"]
    assert [trainer.name for trainer in snapshot.trainers] == ["own"]
    assert (kinds.SAMPLER_POOL.name, "copied") in snapshot.children  # its name may be needed


def test_a_spec_that_cannot_be_read_is_described_by_field_and_remedy() -> None:
    api = ModelApi()
    spec = a_job()["spec"] | {"trainer": {"replicas": 0}}
    api.put(kinds.RLJOB, "job", spec=spec)
    snapshot = observe.job_snapshot(api, Key(kinds.RLJOB.name, NAMESPACE, "job"))
    assert snapshot is not None
    assert snapshot.job.spec_error == (
        "spec.trainer.replicas: The value should be greater than or equal to 1. Correct the field "
        "and apply the manifest again."
    )
