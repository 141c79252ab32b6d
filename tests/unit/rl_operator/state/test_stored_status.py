"""A status that another version has written is read as far as this one knows it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube import kinds
from rl_operator.kube.kinds import Key
from rl_operator.state import attempt_records, observe, stored_status
from tests.samples.manifests import a_job
from tests.unit.rl_operator.model_api import NAMESPACE, ModelApi

READY: dict[str, Any] = {
    "type": "Ready",
    "status": "True",
    "reason": "Running",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}
NEWER: dict[str, Any] = {
    "attempt": 2,
    "failures": 1,
    "phase": "Cooling",
    "cooling": {"degrees": 3},
    "trainer": {"ready": 1, "temperature": 70},
    "conditions": [{**READY, "severity": "Info"}, {"type": "Cool"}, {**READY, "type": "Evicted"}],
    "attempts": [
        {"attempt": 1, "result": "Failed", "startTime": "2026-01-01T00:00:00Z"},
        {"attempt": 2, "result": "Cooled", "startTime": "2026-01-01T01:00:00Z", "watts": 9},
    ],
}


def test_unknown_status_fields_are_dropped_and_nothing_else() -> None:
    status = stored_status.read(RLJobStatus, copy.deepcopy(NEWER))
    assert (status.attempt, status.failures, status.trainer.ready) == (2, 1, 1)
    assert status.phase == RLJobStatus().phase
    assert [condition.type for condition in status.conditions] == ["Ready", "Evicted"]
    assert [attempt.attempt for attempt in status.attempts] == [1, 2]


def test_attempt_with_an_unknown_result_has_ended_once_it_has_an_end_time() -> None:
    raw = copy.deepcopy(NEWER)
    assert not attempt_records.ended(stored_status.read(RLJobStatus, copy.deepcopy(raw)))
    raw["attempts"][-1]["endTime"] = "2026-01-01T02:00:00Z"
    assert attempt_records.ended(stored_status.read(RLJobStatus, raw))


def test_job_with_a_newer_status_is_reconciled() -> None:
    api = ModelApi()
    api.put(kinds.RLJOB, "job", spec=a_job()["spec"], status=copy.deepcopy(NEWER))
    snapshot = observe.job_snapshot(api, Key(kinds.RLJOB.name, NAMESPACE, "job"))
    assert snapshot is not None
    assert (snapshot.job.status.attempt, snapshot.job.spec is not None) == (2, True)


@pytest.mark.parametrize("model", [RLJobStatus, SamplerPoolStatus])
@given(
    raw=st.dictionaries(
        st.sampled_from(["attempt", "replicas", "conditions", "trainer", "assignment", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["type", "job", "ready"]), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_any_stored_status_is_read(model: Any, raw: dict[str, Any]) -> None:
    parsed = stored_status.read(model, raw)
    known = parsed.model_dump(mode="json", by_alias=True)
    assert stored_status.read(model, known) == parsed
