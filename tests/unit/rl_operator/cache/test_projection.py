"""What is read of objects is the same whoever tells of them, and the rest is left out."""

from __future__ import annotations

import json
import marshal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cache.projection import KINDS, METADATA, event_reader, excerpt, list_reader
from rl_operator.kube.kinds import POD, Kind

TEXT = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(TEXT, VALUES, max_size=3)
METADATAS = st.fixed_dictionaries(
    {"name": TEXT, "managedFields": VALUES},
    optional={"labels": MAPPINGS, "annotations": MAPPINGS, "ownerReferences": VALUES},
)
PARTS = st.fixed_dictionaries(
    {"metadata": METADATAS}, optional={"spec": MAPPINGS, "status": MAPPINGS, "data": VALUES}
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
@given(parts=PARTS)
def test_lists_watches_and_answers_tell_the_same(kind: Kind, parts: dict[str, Any]) -> None:
    whole = {"kind": kind.name, **parts, "apiVersion": kind.api_version}
    path, meta = kind.path("n"), {"resourceVersion": "7", "continue": "x"}
    event = event_reader(path)(json.dumps({"type": "ADDED", "object": whole}).encode())
    text = json.dumps({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": [parts]})
    listed = list_reader(path)(text.encode())
    assert (event["type"], listed["metadata"]) == ("ADDED", meta)
    excerpts = [excerpt(kind, manifest) for manifest in (whole, event["object"], *listed["items"])]
    assert len({marshal.dumps(excerpt, 2) for excerpt in excerpts}) == 1
    kept = {"apiVersion", "kind", "metadata", "status", *([] if kind == POD else ["spec"])}
    assert set(excerpts[0]) == kept & {*whole}
    assert set(event["object"]) == set(excerpts[0])
    assert set(event["object"]["metadata"]) == set(METADATA) & {*parts["metadata"]}


EMPTY: dict[str, Any] = {"metadata": {"resourceVersion": "7"}, "items": None}
ERROR: dict[str, Any] = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}


def test_lists_may_be_empty_and_watches_fail() -> None:
    assert list_reader("/api/v1/pods")(json.dumps(EMPTY).encode()) == EMPTY
    assert event_reader("/api/v1/pods")(json.dumps(ERROR).encode())["type"] == "ERROR"


@pytest.mark.parametrize("read", [list_reader, event_reader])
def test_of_what_is_not_watched_all_is_read(read: Any) -> None:
    assert read("/apis/apps/v1")(json.dumps({**EMPTY, "resources": [1]}).encode()) == {
        **EMPTY,
        "resources": [1],
    }


@pytest.mark.parametrize("text", [b"", b"{", b'{"items": [7]}', b'{"items": [{"metadata": 7}]}'])
def test_what_is_no_list_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        list_reader("/api/v1/namespaces/n/pods")(text)
