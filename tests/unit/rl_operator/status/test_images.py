"""The installation's images in a job's status: they stay once the job has ended."""

from __future__ import annotations

from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube.settings import Images
from rl_operator.status.job_status import fields
from rl_operator.status.status_input import StatusInput
from tests.unit.rl_operator.builders import IMAGES, NOW, a_job_object, a_reading, a_snapshot


def status(before: RLJobStatus, images: Images | None) -> RLJobStatus:
    snapshot = a_snapshot(job=a_job_object(before))
    return fields(StatusInput(snapshot=snapshot, reading=a_reading(), images=images, now=NOW))


def test_images_are_shown_and_stay_where_none_are_given() -> None:
    first = status(RLJobStatus(), IMAGES)
    assert first.images is not None
    assert (first.images.sampler, first.images.engine) == (IMAGES.sampler, IMAGES.engine)
    assert first.images.pull_secrets == list(IMAGES.pull_secrets)
    assert status(first, None).images == first.images
    assert status(RLJobStatus(), None).images is None
