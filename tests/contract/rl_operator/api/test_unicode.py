"""Any text that a user or a log can hold survives every kind of write to the API server."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rl_contracts.spec.resources import API_VERSION
from rl_contracts.spec.status import Condition, RLJobStatus
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.kube import kinds
from rl_operator.kube.metadata import Meta
from rl_operator.process.events import EventNote, EventRecorder
from rl_operator.state.recent_warnings import RecentWarnings
from tests.contract.rl_operator.world import World
from tests.samples.manifests import a_job

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""All of Unicode but halves of surrogate pairs, which no UTF-8 text has."""
HARD = (
    "rocket 🚀 and 🤗",
    "del \x7f, C1 \x80\x85\x9f, no-break \xa0",
    "line \u2028 and paragraph \u2029 separators",
    "byte order \ufeff, non-characters \ufffe\uffff\U0001fffe\U0010ffff",
    'quotes " and \\ and \ttabs\r\n, nul \x00',
    "# not: a comment, - nor a list, %YAML",
)


def _write(world: World, text: str) -> str:
    """The text as the API server returns it after a server-side apply."""
    metadata = {"name": "unicode", "namespace": world.namespace, "annotations": {"text": text}}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"t": text}}
    world.cluster.apply(kinds.CONFIG_MAP, manifest, manager="test")
    stored = world.cluster.get(kinds.CONFIG_MAP, world.namespace, "unicode")
    assert stored is not None
    assert stored["metadata"]["annotations"]["text"] == text
    return str(stored["data"]["t"])


@pytest.mark.parametrize("text", HARD)
def test_text_survives_a_server_side_apply(world: World, text: str) -> None:
    assert _write(world, text) == text


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=TEXT)
@example(text=HARD[0])
def test_any_text_survives_a_server_side_apply(world: World, text: str) -> None:
    assert _write(world, text) == text


def _through_a_job(world: World, text: str) -> tuple[str, str, str]:
    """The text in a spec, in a status and in an Event, as the API server returns it."""
    spec = a_job("unicode")["spec"] | {"trainer": {"env": [{"name": "NOTE", "value": text}]}}
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "metadata": {"name": "unicode", "namespace": world.namespace},
    }
    stored = world.cluster.apply(kinds.RLJOB, {**manifest, "spec": spec}, manager="user")
    meta = Meta.parse(stored)
    condition = Condition(
        type="Ready",
        status="False",
        reason="Testing",
        message=text,
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    before = RLJobStatus.model_validate(stored.get("status", {}))
    after = before.model_copy(update={"conditions": [condition]})
    writer = StatusWriter(world.cluster, clock=time.monotonic, seconds=0.0)
    writer.write(kinds.RLJOB, meta, before=before, after=after, urgent=True)
    written = world.cluster.get(kinds.RLJOB, world.namespace, "unicode")
    assert written is not None
    note = f"note: {text}"
    recorder = EventRecorder(world.cluster, identity="test", now=time.time)
    recorder.record(meta, kinds.RLJOB, [EventNote("Testing", note, "Warning")])
    warnings = RecentWarnings(world.cluster, clock=time.monotonic)
    notes = [event["note"] for event in warnings.about(world.namespace, meta.uid)]
    (message,) = [item["message"] for item in written["status"]["conditions"]]
    kept = "".join(event_note.removeprefix("note: ") for event_note in notes if event_note == note)
    return written["spec"]["trainer"]["env"][0]["value"], message, kept


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=TEXT)
@example(text=HARD[0])
@example(text=HARD[3])
def test_any_text_survives_in_spec_status_and_events(world: World, text: str) -> None:
    assert _through_a_job(world, text) == (text, text, text)
