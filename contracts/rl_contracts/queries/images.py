"""An image that a rollout names, and no other object of the bucket."""

from __future__ import annotations

import base64

from rl_contracts.documents.image_types import image_type
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.queries.answers import ImageAnswer, NotFound
from rl_contracts.queries.kinds import MOST_IMAGE_BYTES, ImageQuery
from rl_contracts.queries.rollouts import read_rollout
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import ImageStore


def answer(stores: Stores, run: Run, query: ImageQuery) -> ImageAnswer | NotFound:
    """Read an image that a rollout of a run shows.

    Raises:
        IntegrityError: the object is too large, not what its name says, or no image.
    """
    rollout = read_rollout(stores, run, query.rollout)
    if isinstance(rollout, NotFound):
        return rollout
    if query.sha256 not in _named(rollout):
        return NotFound(missing=f"Rollout {query.rollout} shows no image {query.sha256}.")
    store = ImageStore(stores.objects, run_prefix=stores.run_prefix(run.id))
    try:
        file = store.get(query.sha256, most=MOST_IMAGE_BYTES)
    except ObjectMissingError:
        return NotFound(missing=f"Image {query.sha256} is not in the bucket (any more).")
    if image_type(file) is None:
        raise IntegrityError(f"The stored file {query.sha256} is no PNG, JPEG or WebP image.")
    return ImageAnswer(content=base64.b64encode(file).decode())


def _named(rollout: Rollout) -> set[str]:
    """SHA-256 of the images among a rollout's tokens and in the results of its tool calls."""
    calls = (call for turn in rollout.turns for call in turn.calls)
    of_calls = {image.sha256 for call in calls for image in call.images}
    return of_calls | {image.sha256 for image in rollout.images}
