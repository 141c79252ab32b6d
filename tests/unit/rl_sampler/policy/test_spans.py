"""Digests that are compared while a file comes."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.manifest import FileEntry, Manifest, TensorEntry
from rl_contracts.errors import IntegrityError
from rl_sampler.policy.spans import DigestChecker, Span, segments, spans_of


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def laid_out(sizes: list[int]) -> tuple[bytes, list[Span]]:
    """Content, and spans of these sizes over it."""
    data = bytes(number % 251 for number in range(sum(sizes)))
    spans, end = [], 0
    for number, size in enumerate(sizes):
        begin, end = end, end + size
        spans.append(Span(begin, end, digest(data[begin:end]), f"t{number}"))
    return data, spans


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The content in pieces; the last one takes the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=8)


@given(SIZES, SIZES)
def test_matching_bytes_pass_in_any_pieces(spans: list[int], pieces: list[int]) -> None:
    data, wanted = laid_out(spans)
    proof = DigestChecker("f", wanted)
    for piece in cut(data, pieces):
        proof.update(piece)


@given(SIZES.filter(any), SIZES, st.data())
def test_flipped_bit_is_detected_at_the_end_of_its_span(
    spans: list[int], pieces: list[int], draw: st.DataObject
) -> None:
    data, wanted = laid_out(spans)
    at = draw.draw(st.integers(0, len(data) - 1))
    bad = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    (hit,) = (span for span in wanted if span.begin <= at < span.end)
    proof, come = DigestChecker("f", wanted), 0

    def feed() -> None:
        nonlocal come
        for piece in cut(bad, pieces):
            assert come < hit.end, "a piece was taken after the span had ended"
            come += len(piece)
            proof.update(piece)

    with pytest.raises(IntegrityError, match=f"f: {hit.name} has digest"):
        feed()
    assert come >= hit.end


def test_empty_span_with_a_wrong_digest_is_refused() -> None:
    with pytest.raises(IntegrityError, match="empty has digest"):
        DigestChecker("f", [Span(0, 0, digest(b"x"), "empty")])


@given(SIZES, st.integers(1, 60))
def test_segments_hold_every_span_once_and_keep_digest_spans_whole(
    sizes: list[int], size: int
) -> None:
    _, spans = laid_out(sizes)
    all_segments = segments(spans, size_bytes=size)
    assert [span for segment in all_segments for span in segment] == spans
    assert all(
        sum(span.end - span.begin for span in segment) >= size for segment in all_segments[:-1]
    )
    unknown = segments([Span(0, sum(sizes))], size_bytes=size)
    ends = [segment[-1].end for segment in unknown]
    assert [segment[0].begin for segment in unknown] == [0, *ends[:-1]][: len(ends)]
    assert all(segment[-1].end - segment[0].begin <= size for segment in unknown)


def entry(name: str, shape: list[int], file: str = "a") -> TensorEntry:
    return TensorEntry(name=name, file=file, dtype="BF16", shape=shape, sha256=name)


def manifest(*files: FileEntry) -> Manifest:
    return Manifest(
        kind="policy",
        run="r",
        epoch=1,
        step=1,
        files=list(files),
        tensors=[entry("x", [2, 3]), entry("other", [9], "b"), entry("empty", [0]), entry("y", [])],
    )


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (
            FileEntry(name="a", size_bytes=24, header_sha256="h"),
            [(0, 10, "h"), (10, 22, "x"), (22, 22, "empty"), (22, 24, "y")],
        ),
        (FileEntry(name="a", size_bytes=24, sha256="whole"), [(0, 24, "whole")]),
        (FileEntry(name="a", size_bytes=24), [(0, 24, "")]),
    ],
)
def test_spans_of_a_file_are_its_header_and_tensors(
    file: FileEntry, wanted: list[tuple[int, int, str]]
) -> None:
    spans = spans_of(file, manifest(file))
    assert [(span.begin, span.end, span.sha256) for span in spans] == wanted


def test_without_a_manifest_the_whole_file_is_the_only_span() -> None:
    file = FileEntry(name="a", size_bytes=24, header_sha256="h")
    assert spans_of(file, None) == [Span(0, 24, "", "the file")]
