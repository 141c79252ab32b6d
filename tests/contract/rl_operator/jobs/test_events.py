"""Events on a real API server: the same note again is one Event with a count."""

from __future__ import annotations

import time

from rl_operator.kube import kinds
from rl_operator.kube.metadata import Meta
from rl_operator.process.events import EventNote, EventRecorder
from tests.contract.rl_operator.world import World

LOST = EventNote("SamplerLost", "A sampler pod terminated unexpectedly.", "Warning")


def test_repeated_note_raises_the_count_and_another_note_is_a_new_event(world: World) -> None:
    job = world.make_job(suspend=True)
    raw = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert raw is not None
    for process in ("first", "second"):  # the next process goes on counting
        events = EventRecorder(world.cluster, identity=process, now=time.time)
        events.record(Meta.parse(raw), kinds.RLJOB, [LOST, LOST])
    events.record(Meta.parse(raw), kinds.RLJOB, [EventNote("Suspended", "All pods are gone.")])
    by_reason = {event["reason"]: event for event in world.objects(kinds.EVENT)}
    assert len(world.objects(kinds.EVENT)) == len(by_reason) == 2
    assert by_reason["SamplerLost"]["series"]["count"] == 4
    assert "series" not in by_reason["Suspended"]
    about = by_reason["SamplerLost"]["regarding"]
    assert (about["kind"], about["uid"]) == ("RLJob", raw["metadata"]["uid"])


def test_a_note_in_any_script_is_cut_to_the_bytes_that_the_api_server_takes(world: World) -> None:
    job = world.make_job(suspend=True)
    raw = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert raw is not None
    words = "模型" * 512  # as many characters as a condition's message may have
    events = EventRecorder(world.cluster, identity="it", now=time.time)
    events.record(Meta.parse(raw), kinds.RLJOB, [EventNote("AttemptFailed", words, "Warning")])
    (event,) = world.objects(kinds.EVENT)
    assert len(event["note"]) > 300
    assert words.startswith(event["note"])
