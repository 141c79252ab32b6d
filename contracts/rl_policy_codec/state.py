"""Deltas between two states of a whole model, encoded and applied in parallel by ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from typing import TypeAlias

from rl_contracts.errors import IntegrityError
from rl_policy_codec import container, patch
from rl_policy_codec.container import Place
from rl_policy_codec.patch import Elements

State: TypeAlias = Mapping[str, Elements]
"""Flat tensors of a model by name."""

RANGE_BYTES = 32 << 20
"""Bytes of a tensor that a patch covers."""
FILE_BYTES = 128 << 20
"""Bytes of the model that a delta file covers; the unit of parallel work."""
SAMPLE_ELEMENTS = 1 << 16
POSITION_BYTES = 1.0
"""Bytes of a compressed gap; measured 0.5 to 1.0 at densities between 1 % and 20 %."""


def start_digests(state: State, executor: Executor) -> dict[str, Future[str]]:
    """Start computing the SHA-256 of every tensor's bytes, in hexadecimal."""
    return {name: executor.submit(_digest, flat) for name, flat in state.items()}


def digests(state: State, executor: Executor) -> dict[str, str]:
    """SHA-256 of every tensor's bytes, in hexadecimal."""
    return {name: digest.result() for name, digest in start_digests(state, executor).items()}


def _digest(flat: Elements) -> str:
    return hashlib.sha256(flat.data).hexdigest()


def expected_fraction(new: State, old: State) -> float:
    """Estimated size of the delta as a share of the full state, from a sample of each tensor."""
    total = sum(flat.nbytes for flat in new.values())
    expected = 0.0
    for name, flat in new.items():
        start = max(0, (flat.size - SAMPLE_ELEMENTS) // 2)
        sample = slice(start, start + SAMPLE_ELEMENTS)
        share = patch.changed_fraction(flat[sample], old[name][sample])
        expected += share * flat.size * min(flat.itemsize, 1 + POSITION_BYTES)
    return expected / max(1, total)


def encode(new: State, old: State, executor: Executor) -> list[bytes]:
    """Delta files that turn ``old`` into ``new``; both have the same tensors, shapes and types."""
    assert new.keys() == old.keys(), "a delta needs a base with the same tensors"
    pending = [executor.submit(_encode, places, new, old) for places in _files(new)]
    return [file for file in (job.result() for job in pending) if file is not None]


def _encode(places: list[tuple[Place, int]], new: State, old: State) -> bytes | None:
    patches = {}
    for place, count in places:
        part = slice(place.start, place.start + count)
        encoded = patch.encode(new[place.tensor][part], old[place.tensor][part])
        if encoded is not None:
            patches[place] = encoded
    return container.pack(patches) if patches else None


def apply(file: bytes, state: State) -> set[str]:
    """Apply a delta file in place; return the names of the tensors that it changed.

    Files of a delta change different elements and may be applied in parallel.

    Raises:
        IntegrityError: the file is malformed or of another model.
    """
    names = set()
    # Gaps have at most eight bytes, like values; names and the header take the rest.
    limit = sum(2 * 8 * flat.size for flat in state.values()) + (1 << 24)
    for place, delta in container.unpack(file, limit_bytes=limit).items():
        flat = state.get(place.tensor)
        if flat is None or place.start > flat.size:
            raise IntegrityError(f"delta changes {place}, which the model does not have")
        patch.apply(delta, flat[place.start :])
        names.add(place.tensor)
    return names


def _files(state: State) -> Iterator[list[tuple[Place, int]]]:
    """Ranges of all tensors, grouped into files of about FILE_BYTES."""
    places: list[tuple[Place, int]] = []
    covered = 0
    for name, flat in state.items():
        step = RANGE_BYTES // flat.itemsize
        for start in range(0, flat.size, step):
            count = min(step, flat.size - start)
            places.append((Place(name, start), count))
            covered += count * flat.itemsize
            if covered >= FILE_BYTES:
                yield places
                places, covered = [], 0
    if places:
        yield places
