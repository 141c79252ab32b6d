"""Images in results of tools, with a real decoder and a bucket in memory."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rl_contracts.errors import ObjectMissingError, RefusedError, StoreUnavailableError
from rl_contracts.spec.data import Images
from rl_sampler.engine.images import RunImages
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.tools.images import MOST, ToolImages, tool_images
from tests.models.tiny_vision import picture

SIDE = 28
PROCESSOR = {"size": {"shortest_edge": SIDE**2, "longest_edge": 64 * SIDE**2}}


class Bucket:
    """Fails the first ``outages`` requests."""

    def __init__(self, outages: int = 0) -> None:
        self.held: dict[str, bytes] = {}
        self.outages, self.writes = outages, 0

    def stat(self, key: str) -> None:
        if self.outages:
            self.outages -= 1
            raise StoreUnavailableError(store="bucket", doing="a test", cause="down")
        if key not in self.held:
            raise ObjectMissingError(key)

    def put(self, key: str, content: bytes) -> None:
        self.writes += 1
        self.held[key] = content


def taking(bucket: Bucket, **limits: Any) -> ToolImages:
    stores: Any = SimpleNamespace(objects=bucket, run_prefix=lambda run: f"runs/{run}/")
    shared = SharedStores(stores, problems=Problems())
    images = RunImages(shared=shared, run="r")
    return tool_images(Images.model_validate(limits), PROCESSOR, side=SIDE, images=images)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def images(bucket: Bucket) -> Iterator[ToolImages]:
    taken = taking(bucket)
    yield taken
    taken.close()


def sent(file: bytes) -> str:
    return base64.b64encode(file).decode()


async def test_an_image_is_stored_in_the_size_that_the_model_takes(
    images: ToolImages, bucket: Bucket
) -> None:
    files = [sent(picture(60, 100, kind="JPEG")), sent(picture(SIDE, SIDE))]
    (wide, small), notes = await images.take(files)
    assert notes == []
    assert (wide.width, wide.height) == (4 * SIDE, 2 * SIDE)
    assert (small.width, small.height) == (SIDE, SIDE)
    assert set(bucket.held) == {f"runs/r/images/{each.sha256}.png" for each in (wide, small)}
    for part in (wide, small):
        png = bucket.held[f"runs/r/images/{part.sha256}.png"]
        assert hashlib.sha256(png).hexdigest() == part.sha256
    (again,), _ = await images.take(files[:1])
    assert again == wide
    assert bucket.writes == 2, "stored once"


@pytest.mark.parametrize(
    ("file", "note"),
    [
        ("no base64!", "[image left out: it is not in base64]"),
        (sent(b"GIF89a and more"), "[image left out: it cannot be shown: cannot identify"),
        (sent(bytes(4000)), "[image left out: it has 4002 bytes, more than"),
    ],
)
async def test_a_bad_image_is_left_out_and_the_policy_is_told_why(
    bucket: Bucket, file: str, note: str
) -> None:
    images = taking(bucket, maxBytes=3000)
    try:
        taken, notes = await images.take([file, sent(picture(SIDE, SIDE))])
        assert len(taken) == 1
        assert notes[0].startswith(note), notes
    finally:
        images.close()


async def test_a_result_has_a_limit_of_images(images: ToolImages) -> None:
    taken, notes = await images.take([sent(picture(SIDE, SIDE))] * (MOST + 2))
    assert len(taken) == MOST
    assert notes == [f"[image left out: it is one more than the {MOST} of a result]"] * 2


async def test_an_outage_of_the_bucket_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_sampler.engine.shared_stores.RETRY_SECONDS", 0.001)
    bucket = Bucket(outages=2)
    images = taking(bucket)
    try:
        (part,), _ = await images.take([sent(picture(SIDE, SIDE))])
    finally:
        images.close()
    assert list(bucket.held) == [f"runs/r/images/{part.sha256}.png"]


def test_limits_that_the_model_does_not_have_are_refused(bucket: Bucket) -> None:
    with pytest.raises(RefusedError, match="maxPixels"):
        taking(bucket, maxPixels=65 * SIDE**2)
