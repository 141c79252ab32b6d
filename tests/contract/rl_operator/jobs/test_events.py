"""Events on a real API server: the same turn told again is one Event with a count."""

from __future__ import annotations

import time

from rl_operator.kube import kinds
from rl_operator.kube.metadata import Meta
from rl_operator.process.events import Journal, Note
from tests.contract.rl_operator.world import World

LOST = Note("SamplerLost", "A sampler pod ended unasked.", "Warning")


def test_the_same_turn_is_counted_and_another_one_told_apart(world: World) -> None:
    job = world.make_job(suspend=True)
    raw = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert raw is not None
    for process in ("first", "second"):  # the next process goes on counting
        journal = Journal(world.cluster, identity=process, now=time.time)
        journal.post(Meta.parse(raw), kinds.RLJOB, [LOST, LOST])
    journal.post(Meta.parse(raw), kinds.RLJOB, [Note("Suspended", "All pods are gone.")])
    told = {one["reason"]: one for one in world.objects(kinds.EVENT)}
    assert len(world.objects(kinds.EVENT)) == len(told) == 2
    assert told["SamplerLost"]["series"]["count"] == 4
    assert "series" not in told["Suspended"]
    about = told["SamplerLost"]["regarding"]
    assert (about["kind"], about["uid"]) == ("RLJob", raw["metadata"]["uid"])


def test_words_of_any_script_are_posted(world: World) -> None:
    job = world.make_job(suspend=True)
    raw = world.cluster.get(kinds.RLJOB, job.namespace, job.name)
    assert raw is not None
    words = "模型" * 512  # as many characters as a condition's message may have
    journal = Journal(world.cluster, identity="it", now=time.time)
    journal.post(Meta.parse(raw), kinds.RLJOB, [Note("AttemptFailed", words, "Warning")])
    (told,) = world.objects(kinds.EVENT)
    assert len(told["note"]) > 300
    assert words.startswith(told["note"])
