"""A Workload that the operator took out of its queue stays out, whichever release reads it."""

from __future__ import annotations

import dataclasses
from typing import Any

from rl_operator.kube.conditions import Stall
from rl_operator.kube.names import UNUSABLE_ANNOTATION
from rl_operator.kube.settings import DEFAULT_RULES, Images
from rl_operator.kueue import workload_marks
from rl_operator.kueue.admission import parse
from rl_operator.kueue.gate import Gate
from rl_operator.kueue.queueing import Queueing
from tests.unit.rl_operator.builders import IMAGES, a_job_object, a_snapshot
from tests.unit.rl_operator.kueue.test_admission import NoCluster
from tests.unit.rl_operator.kueue.workloads import QUEUED, Raw, child_of, demand, stored

WHY = Stall(reason="FlavorConflict", message="nodeSelector pool = 'mine': Remove it.")
NEXT_RELEASE = dataclasses.replace(IMAGES, trainer="t:2", sampler="s:2", engine="e:2")


def given_up(**annotations: str) -> Raw:
    """A Workload that is deactivated, with our marks or those of the test."""
    raw = stored()
    marks = workload_marks.deactivated(parse(child_of(raw)), WHY, demand())
    raw["metadata"]["annotations"] |= annotations or marks["metadata"]["annotations"]
    raw["spec"]["active"] = False
    return raw


def gate_of(raw: Raw, images: Images = IMAGES, **sections: Any) -> Gate:
    queueing = Queueing(
        cluster=NoCluster(), images=images, enabled=True, now=lambda: 0.0, rules=DEFAULT_RULES
    )
    job = a_job_object(**QUEUED | sections)
    children = {("Workload", "rljob-job"): child_of(raw)}
    _, opened = queueing.gate(a_snapshot(job=job, children=children), refused=lambda: False)
    assert opened is not None
    return opened


def test_other_images_do_not_queue_a_job_again_and_other_nodes_do() -> None:
    for images in (IMAGES, NEXT_RELEASE):
        kept = gate_of(given_up(), images)
        assert (kept.stall, kept.drop) == (WHY, None)
    renewed = gate_of(given_up(), trainer={"tolerations": [{"key": "spot"}]})
    assert (renewed.stall, renewed.drop is not None) == (None, True)


def test_mark_is_read_by_releases_that_know_no_digest_and_theirs_by_this_one() -> None:
    mark = f"{WHY.reason}: {WHY.message}"
    assert given_up()["metadata"]["annotations"][UNUSABLE_ANNOTATION] == mark
    for images in (IMAGES, NEXT_RELEASE):
        kept = gate_of(given_up(**{UNUSABLE_ANNOTATION: mark}), images)
        assert (kept.stall, kept.drop) == (WHY, None)


def test_mark_that_somebody_has_spoilt_leaves_a_deactivated_workload() -> None:
    for edited in ("", "{", "FlavorConflict"):
        kept = gate_of(given_up(**{UNUSABLE_ANNOTATION: edited}))
        assert (kept.stall, kept.drop) == (None, None)
        assert kept.hold is not None
        assert kept.hold.reason == "Deactivated"
