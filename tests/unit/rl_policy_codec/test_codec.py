from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_contracts.errors import IntegrityError
from rl_policy_codec import container, patch, state
from rl_policy_codec.container import Place
from rl_policy_codec.patch import Elements, Patch

SIZES = (1, 2, 4, 8)
NAN_PAYLOADS = struct.pack("<4I", 0x7FC00001, 0xFFC00002, 0x7F800001, 0x80000000)
"""As float32: two quiet NaNs, a signalling one, and -0.0; numerically some equal nothing."""


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Elements, Elements]:
    """Two arrays of one form, some of whose elements differ."""
    size = draw(st.sampled_from(SIZES))
    count = draw(st.integers(0, 400))
    old = np.frombuffer(draw(st.binary(min_size=size * count, max_size=size * count)), f"<u{size}")
    new = old.copy()
    for position in draw(st.lists(st.integers(0, max(0, count - 1)), max_size=20)):
        if count:
            new[position] = draw(st.integers(0, 2 ** (8 * size) - 1))
    return new, old


@settings(deadline=None)
@given(pairs())
@example((np.frombuffer(NAN_PAYLOADS, "<u4"), np.zeros(4, "<u4")))
@example((np.zeros(1, "<u2"), np.ones(1, "<u2")))
@example((np.ones(0, "<u2"), np.ones(0, "<u2")))
def test_a_patch_gives_the_new_bytes_once_and_twice(pair: tuple[Elements, Elements]) -> None:
    new, old = pair
    made = patch.encode(new, old)
    if made is None:
        assert new.tobytes() == old.tobytes()
        return
    target = old.copy()
    for _ in range(2):
        patch.apply(made, target)
        assert target.tobytes() == new.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("length", [patch.SLICE_ELEMENTS, patch.SLICE_ELEMENTS + 1, 3 << 17])
def test_changes_far_apart_and_at_the_edges_of_slices(size: int, length: int) -> None:
    old = np.zeros(length, f"<u{size}")
    new = old.copy()
    new[[0, patch.SLICE_ELEMENTS - 1, length - 1]] = 7
    made = patch.encode(new, old)
    assert made is not None
    patch.apply(made, old)
    assert np.array_equal(old, new)


BAD: dict[str, tuple[list[list[int]], list[list[int]]]] = {
    "beyond the end": ([[3]], [[1]]),
    "beyond the end in the sum": ([[2, 1]], [[1, 1]]),
    "not ascending": ([[1, 0]], [[1, 1]]),
    "fewer values": ([[0, 1]], [[1]]),
    "wider values": ([[0]], [[1], [1]]),
    "gaps of three bytes": ([[0], [0], [0]], [[1]]),
    "a gap that would wrap around": (
        [[0, 255], [0, 255], [0, 255], [0, 255], [0, 255], [0, 255], [0, 255], [0, 255]],
        [[1, 1]],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_patch_of_another_array_is_refused_and_changes_nothing(name: str) -> None:
    gaps, values = (np.array(planes, np.uint8) for planes in BAD[name])
    target = np.zeros(3, np.uint8)
    with pytest.raises(IntegrityError):
        patch.apply(Patch(gaps, values), target)
    assert not target.any()


def a_state(seed: int) -> dict[str, Elements]:
    random = np.random.default_rng(seed)
    return {
        "matrix": random.integers(0, 1 << 16, 500).astype("<u2"),
        "odd: name@3:values": random.integers(0, 1 << 32, 77).astype("<u4"),
        "scalar": random.integers(0, 1 << 16, 1).astype("<u2"),
        "empty": np.empty(0, "<u2"),
        "flags": random.integers(0, 2, 9).astype("<u1"),
        "count": random.integers(0, 1 << 60, 3).astype("<u8"),
    }


def a_delta(executor: ThreadPoolExecutor) -> tuple[dict[str, Elements], bytes]:
    new = a_state(1)
    (file,) = state.encode(new, a_state(0), executor)
    return new, file


with ThreadPoolExecutor(1) as _executor:
    DELTA = a_delta(_executor)[1]


def test_a_delta_makes_every_tensor_new(executor: ThreadPoolExecutor) -> None:
    new, file = a_delta(executor)
    target = a_state(0)
    for _ in range(2):
        changed = state.apply(file, target)
        assert changed == {name for name in new if name != "empty"}
        assert all(target[name].tobytes() == flat.tobytes() for name, flat in new.items())
    assert state.digests(target, executor) == state.digests(new, executor)


def test_equal_states_need_no_file(executor: ThreadPoolExecutor) -> None:
    assert state.encode(a_state(0), a_state(0), executor) == []
    assert state.expected_fraction(a_state(0), a_state(0)) == 0


def test_many_ranges_and_files_give_the_same_state(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "RANGE_BYTES", 200)
    monkeypatch.setattr(state, "FILE_BYTES", 400)
    new, target = a_state(1), a_state(0)
    files = state.encode(new, target, executor)
    assert len(files) > 3
    for file in reversed(files):
        state.apply(file, target)
    assert all(target[name].tobytes() == flat.tobytes() for name, flat in new.items())


@settings(deadline=None)
@given(data=st.data())
def test_no_damaged_file_is_applied(data: st.DataObject) -> None:
    file = DELTA
    position = data.draw(st.integers(0, len(file) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                file[:position],
                file[:position] + bytes([file[position] ^ 1]) + file[position + 1 :],
                file + b"\0",
            ]
        )
    )
    target = a_state(0)
    try:
        state.apply(damaged, target)
    except IntegrityError:
        return
    # A flipped bit in an unused field of the frame; what comes out is still what went in.
    assert all(target[name].tobytes() == flat.tobytes() for name, flat in a_state(1).items())


def test_a_delta_of_another_model_is_refused(executor: ThreadPoolExecutor) -> None:
    _, file = a_delta(executor)
    other = a_state(0)
    del other["flags"]
    with pytest.raises(IntegrityError, match="does not have"):
        state.apply(file, other)
    shorter = a_state(0) | {"matrix": a_state(0)["matrix"][:10]}
    with pytest.raises(IntegrityError):
        state.apply(file, shorter)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 24))
    with pytest.raises(IntegrityError, match="at most 1000"):
        container.unpack(bomb, limit_bytes=1000)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100)
    with pytest.raises(IntegrityError):
        container.unpack(unsized, limit_bytes=1000)


@pytest.mark.parametrize(
    "header",
    [
        {"w@0:gaps": [1, 1]},
        {"w:gaps": [1, 1], "w:values": [1, 1]},
        {"w@0:gaps": [1], "w@0:values": [1, 1]},
        {"w@0:other": [1, 1]},
    ],
)
def test_other_safetensors_files_are_refused(header: dict[str, list[int]]) -> None:
    entries = {
        name: {"dtype": "U8", "shape": shape, "data_offsets": [number, number + 1]}
        for number, (name, shape) in enumerate(header.items())
    }
    body = json.dumps(entries).encode()
    file = struct.pack("<Q", len(body)) + body + bytes(len(entries))
    with pytest.raises(IntegrityError):
        container.unpack(zstandard.ZstdCompressor().compress(file), limit_bytes=1 << 20)


def test_the_estimate_is_near_the_size(executor: ThreadPoolExecutor) -> None:
    random = np.random.default_rng(0)
    bits = random.normal(0, 0.02, 1 << 20).astype("<f4").view(np.uint32) >> 16
    old = {"w": bits.astype(np.uint16)}
    for density in (0.01, 0.05, 0.2):
        new = {"w": old["w"].copy()}
        moved = random.random(1 << 20) < density
        new["w"][moved] ^= 1
        size = sum(len(file) for file in state.encode(new, old, executor)) / new["w"].nbytes
        assert size == pytest.approx(state.expected_fraction(new, old), rel=0.4)


def test_a_place_survives_any_tensor_name() -> None:
    made = Patch(np.zeros((1, 1), np.uint8), np.ones((1, 1), np.uint8))
    for name in ("a", "a@1", "a:gaps", "ü@2:values", ""):
        place = Place(name, 3)
        assert list(container.unpack(container.pack({place: made}), limit_bytes=1000)) == [place]
