"""What is packed is the same when it is read, whatever was packed before it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cache.compression import DICTIONARY_BYTES, SMALL_BYTES, Packing

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
LONG = st.builds(lambda text, times: text * times, st.text(min_size=1), st.integers(0, 4000))
MAPPING = st.dictionaries(st.sampled_from("abc"), JSON | LONG)
FEW = st.integers(0, 3)


def a_pod(number: int, **status: Any) -> dict[str, Any]:
    labels = {
        f"rl-operator.io/{name}": f"{name}-of-job-{number}" for name in ("job", "pool", "run")
    }
    times = {f"condition-{index}": "2026-01-01T00:00:00Z" for index in range(10)}
    meta = {"name": f"pod-{number}", "namespace": "n", "labels": labels}
    return {"kind": "Pod", "metadata": meta, "status": {**times, **status}}


@given(st.lists(MAPPING), FEW)
def test_any_mapping_is_read_as_it_was(mappings: list[dict[str, Any]], fresh: int) -> None:
    packing = Packing(fresh=fresh)
    packed = [packing.pack("Pod", mapping) for mapping in mappings]
    assert [pack.unpacked() for pack in packed] == mappings


@given(MAPPING, MAPPING, st.lists(MAPPING), FEW)
def test_two_are_alike_where_they_are_equal(
    mapping: dict[str, Any], other: dict[str, Any], between: list[dict[str, Any]], fresh: int
) -> None:
    packing = Packing(fresh=fresh)
    first = packing.pack("Pod", mapping)
    for each in between:
        packing.pack("Pod", each)
    assert first.is_like(packing.pack("Pod", mapping))
    assert first.is_like(packing.pack("Pod", other)) == (first.whole() == _whole(other))


def _whole(mapping: dict[str, Any]) -> bytes:
    return Packing().pack("Pod", mapping).whole()


def test_what_is_like_those_before_it_takes_a_fraction_of_its_size() -> None:
    packing = Packing(fresh=0)
    packed = [packing.pack("Pod", a_pod(index)) for index in range(100)]
    assert len(packed[0].whole()) > SMALL_BYTES
    assert max(len(pack.content) for pack in packed[1:]) < len(packed[0].whole()) / 6
    assert {id(pack.dictionary) for pack in packed} == {id(packed[0].dictionary)}


def test_what_was_packed_last_is_compressed_when_others_follow() -> None:
    packing = Packing(fresh=2)
    packed = [packing.pack("Pod", a_pod(index)) for index in range(5)]
    assert [bool(pack.dictionary) for pack in packed] == [True, True, True, False, False]
    assert [pack.unpacked() for pack in packed] == [a_pod(index) for index in range(5)]


def test_what_nobody_has_any_more_is_not_compressed() -> None:
    packing = Packing(fresh=1)
    packing.pack("Pod", a_pod(1))
    second, third = (packing.pack("Pod", a_pod(number)) for number in (2, 3))
    assert second.dictionary == second.whole()[-DICTIONARY_BYTES:]  # as the first of its kind
    assert not third.dictionary


def test_what_is_unlike_those_before_it_is_what_those_after_it_are_told_by() -> None:
    packing = Packing(fresh=0)
    packing.pack("Pod", a_pod(1))
    strange = {str(index): hashlib.sha256(bytes([index])).hexdigest() for index in range(100)}
    first, second = (packing.pack("Pod", {**strange, "n": index}) for index in range(2))
    assert first.dictionary is second.dictionary
    assert len(second.content) < len(second.whole()) / 20


@pytest.mark.parametrize("length", [0, DICTIONARY_BYTES, 10 * DICTIONARY_BYTES])
def test_no_more_words_are_kept_than_the_compression_uses(length: int) -> None:
    packing = Packing(fresh=0)
    huge = packing.pack("RLJob", {"spec": {str(index): index**9 for index in range(length)}})
    assert len(huge.dictionary) <= DICTIONARY_BYTES
    assert len(huge.unpacked()["spec"]) == length
