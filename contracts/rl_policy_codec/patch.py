"""Patches: positions and new values of the elements that changed in an array. Pure.

Values overwrite and are not added or xored, so applying a patch twice gives the same bytes and an
interrupted apply can simply be repeated. Elements are compared as unsigned integers, so NaN
payloads and the sign of zero survive. PULSE (arXiv 2602.03839, section 3) explains why few elements
change per RL step at small learning rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rl_contracts.errors import IntegrityError

Elements: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""One-dimensional little-endian unsigned integers of 1, 2, 4 or 8 bytes."""
Planes: TypeAlias = NDArray[np.uint8]
"""[bytes of an element, elements]: byte 0 (the lowest) of all elements, then byte 1, and so on."""

UNSIGNED = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
SLICE_ELEMENTS = 1 << 17
"""Elements compared at a time, so that intermediate results stay in a core's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Changed elements of an array, in ascending order of position."""

    gaps: Planes
    """The first position, then the distance of each from the previous; 1, 2, 4 or 8 bytes each."""
    values: Planes
    """The new elements at these positions."""


def elements(raw: Any, *, item_bytes: int) -> Elements:
    """View contiguous bytes as elements without a copy; writes change the original bytes.

    Raises:
        KeyError: ``item_bytes`` is not supported.
        ValueError: the length is not a multiple of ``item_bytes``.
    """
    return np.frombuffer(raw, dtype=UNSIGNED[item_bytes])


def encode(new: Elements, old: Elements) -> Patch | None:
    """The patch that turns ``old`` into ``new`` (same length and item size); None when equal."""
    assert (new.shape, new.dtype) == (old.shape, old.dtype), "a delta needs a base of the same form"
    positions = changed(new, old)
    if positions.size == 0:
        return None
    gaps = np.diff(positions, prepend=0)
    width = _width(int(gaps.max()))
    return Patch(gaps=_planes(gaps.astype(UNSIGNED[width])), values=_planes(new[positions]))


def changed(new: Elements, old: Elements) -> NDArray[np.int64]:
    """Ascending positions of the elements that differ."""
    positions = [start + part for start, part in _changed_slices(new, old)]
    return np.concatenate(positions) if positions else np.empty(0, np.int64)


def changed_fraction(new: Elements, old: Elements) -> float:
    """Share of the elements that differ, in [0, 1]; 0 for no elements."""
    return sum(part.size for _, part in _changed_slices(new, old)) / max(1, new.size)


def _changed_slices(new: Elements, old: Elements) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for start in range(0, new.size, SLICE_ELEMENTS):
        end = start + SLICE_ELEMENTS
        part = np.flatnonzero(new[start:end] != old[start:end])
        if part.size:
            yield start, part


def apply(patch: Patch, target: Elements) -> None:
    """Overwrite the changed elements of ``target`` in place.

    Raises:
        IntegrityError: the patch does not fit the array; nothing was changed.
    """
    count = patch.gaps.shape[1]
    if patch.values.shape != (target.itemsize, count) or patch.gaps.shape[0] not in UNSIGNED:
        raise IntegrityError(
            f"patch of {patch.gaps.shape} gaps and {patch.values.shape} values does not fit "
            f"elements of {target.itemsize} bytes"
        )
    if count == 0:
        return
    gaps = _joined(patch.gaps)
    if gaps[1:].size and int(gaps[1:].min()) == 0:
        raise IntegrityError("positions of a patch do not ascend")
    # Gaps beyond the target would overflow the sum.
    if int(gaps.max()) >= target.size:
        raise IntegrityError(f"patch reaches beyond its array of {target.size} elements")
    positions = np.cumsum(gaps, dtype=np.int64)
    if int(positions[-1]) >= target.size:
        raise IntegrityError(f"patch reaches beyond its array of {target.size} elements")
    target[positions] = _joined(patch.values)


def _width(largest: int) -> int:
    return next(size for size in UNSIGNED if largest < 1 << (8 * size))


def _planes(values: Elements) -> Planes:
    # Low bytes hardly compress and high bytes compress well: stored apart, each gets its own code.
    return np.ascontiguousarray(values.view(np.uint8).reshape(values.size, values.itemsize).T)


def _joined(planes: Planes) -> Elements:
    joined = np.ascontiguousarray(planes.T).view(UNSIGNED[planes.shape[0]])
    return joined.reshape(planes.shape[1])
