"""A rank reads the images of its share before it computes, where it may fail alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from rl_contracts.errors import IntegrityError, ObjectMissingError, RLError, StoreUnavailableError
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.samples import Sample
from rl_trainer.errors import ShareUnreadableError
from rl_trainer.model import loading, vision
from rl_trainer.model.learner import Learner
from rl_trainer.rollouts.rank_work import RankWork
from tests.models.families import SPEC
from tests.models.tiny_vision import VOCABULARY, Album, AlbumStore, save_seeing, seeing_sample

FAMILY = "qwen2_5_vl"
MISSING = ObjectMissingError("s3://bucket/images/1.png")
CHANGED = IntegrityError("images/1.png is not the file that was stored")
DOWN = StoreUnavailableError(store="the bucket", doing="reading images/1.png", cause="timed out")


class Store(AlbumStore):
    """Stored images, some of which cannot be read."""

    def __init__(self) -> None:
        super().__init__(Album())
        self.errors: dict[str, RLError] = {}
        self.reads: list[str] = []

    def get(self, sha256: str, /) -> bytes:
        if sha256 in self.errors:
            raise self.errors[sha256]
        self.reads.append(sha256)
        return super().get(sha256)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture(params=[vision.CACHED_BYTES, 1], ids=["all patches", "few patches"])
def work(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> RankWork:
    """Also with more images than whose patches are kept."""
    monkeypatch.setattr(vision, "CACHED_BYTES", request.param)
    folder = save_seeing(tmp_path, FAMILY)
    policy = loading.load(folder, precision="FP32", uri="s3://models/seeing", images=store)
    learner = Learner(policy, RLJobSpec.model_validate(SPEC))
    limits = Limits(vocabulary=VOCABULARY, max_tokens=64)
    return RankWork(learner, cast(Any, None), limits)


def samples(store: Store) -> list[Sample]:
    sizes: tuple[tuple[tuple[int, int], ...], ...] = ((), ((2, 3),), ((1, 1), (4, 2)))
    return [
        replace(seeing_sample(store.album, FAMILY, *each, seed=seed), rollout=f"rollout-{seed}")
        for seed, each in enumerate(sizes)
    ]


def names(taken: Sequence[Sample]) -> list[str]:
    """Of their images."""
    return [image.sha256 for each in taken for image in each.images]


@pytest.mark.parametrize("error", [MISSING, CHANGED], ids=["missing", "changed"])
def test_a_rollout_with_an_unreadable_image_is_damaged(
    work: RankWork, store: Store, error: RLError
) -> None:
    taken = samples(store)
    store.errors[taken[2].images[1].sha256] = error
    wrong = work.take(taken, purpose="Train", step=1)
    assert wrong == {"rollout-2": f"an image cannot be read: {error}"}


def test_an_outage_is_reported_before_the_computation(work: RankWork, store: Store) -> None:
    taken = samples(store)
    store.errors[taken[1].images[0].sha256] = DOWN
    with pytest.raises(StoreUnavailableError):
        work.take(taken, purpose="Train", step=1)


def test_a_step_reads_no_image(work: RankWork, store: Store) -> None:
    taken = samples(store)
    assert work.take(taken, purpose="Train", step=1) == {}
    store.errors = dict.fromkeys(store.album, DOWN)
    work.train(step=1)
    assert sorted(store.reads) == sorted(names(taken))


def test_a_step_reads_no_image_whose_patches_alone_were_kept(work: RankWork, store: Store) -> None:
    """Those may be dropped before the turn of the image."""
    _, first, second = samples(store)
    work.take([second], purpose="Train", step=1)
    work.train(step=1)
    work.take([first], purpose="Train", step=2)
    work.take([second, first], purpose="Train", step=2)
    store.errors = dict.fromkeys(store.album, DOWN)
    work.train(step=2)


@pytest.mark.parametrize("error", [MISSING, CHANGED], ids=["missing", "changed"])
def test_images_beyond_the_files_that_are_held_are_read_before_the_step_and_drop_none_of_these(
    work: RankWork, store: Store, monkeypatch: pytest.MonkeyPatch, error: RLError
) -> None:
    monkeypatch.setattr(vision, "STORED_BYTES", 1)
    taken = samples(store)
    held, *others = names(taken)
    assert work.take(taken, purpose="Train", step=1) == {}
    assert store.reads == [held, *others]
    store.errors = {held: DOWN}
    work.train(step=1)
    store.errors = {others[0]: error}
    wrong = work.take(taken, purpose="Train", step=2)
    assert wrong == {"rollout-2": f"an image cannot be read: {error}"}


def test_an_image_that_many_rollouts_show_is_read_once_and_damages_them_all(
    work: RankWork, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision, "STORED_BYTES", 1)
    _, first, second = samples(store)
    group = [first, *(replace(second, rollout=f"same-{number}") for number in range(3))]
    assert work.take(group, purpose="Train", step=1) == {}
    assert sorted(store.reads) == sorted(set(names(group)))
    store.errors = {names(group)[-1]: CHANGED}
    wrong = work.take(group, purpose="Train", step=2)
    assert wrong == {f"same-{number}": f"an image cannot be read: {CHANGED}" for number in range(3)}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MISSING, "StoredDataMissing"),
        (CHANGED, "StoredDataCorrupt"),
        (DOWN, "StoreUnavailable"),
    ],
)
def test_an_image_that_is_not_held_any_more_breaks_a_step_off_with_its_reason(
    work: RankWork, store: Store, error: RLError, reason: str
) -> None:
    taken = samples(store)
    store.errors[taken[1].images[0].sha256] = error
    with pytest.raises(ShareUnreadableError, match="cannot read images of this rank") as broken:
        work.learner.update(taken, step=1)
    assert broken.value.reason == reason
