"""One object that is nested too deeply is read as far as that goes, and all others are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cache.projection import event_reader, list_reader
from rl_operator.kube import nesting
from rl_operator.kube.kinds import RLJOB, SAMPLER_POOL, Key, Kind
from rl_operator.kube.transport import parsed
from rl_operator.state.observe import job_snapshot
from tests.samples.manifests import a_job
from tests.unit.rl_operator.model_api import NAMESPACE, ModelApi

DEPTHS = (1, 150, 300, 5000)
AT = st.sampled_from(["map", "list"])
TEXT = st.text('"\\{}[]ab', max_size=6)
VALUES = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)


def nested(depth: int) -> str:
    """So many maps, one in the other; as text, for the standard library has limits, too."""
    return '{"a":' * depth + '""' + "}" * depth


def an_object(depth: int) -> str:
    metadata = json.dumps({"name": f"deep-{depth}", "resourceVersion": "1"})
    return f'{{"metadata":{metadata},"spec":{{"trainer":{{"podTemplate":{nested(depth)}}}}}}}'


@pytest.mark.parametrize("kind", [RLJOB, SAMPLER_POOL], ids=lambda kind: kind.plural)
def test_list_with_a_deeply_nested_object_is_read(kind: Kind) -> None:
    items = ",".join(an_object(depth) for depth in DEPTHS)
    text = f'{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{items}]}}'.encode()
    for read in (list_reader(kind.path("n")), parsed):
        named = [item["metadata"]["name"] for item in read(text)["items"]]
        assert named == [f"deep-{depth}" for depth in DEPTHS]


@pytest.mark.parametrize("depth", DEPTHS)
def test_watch_event_is_read_and_a_deep_spec_is_refused(depth: int) -> None:
    text = f'{{"type":"ADDED","object":{an_object(depth)}}}'.encode()
    spec = event_reader(RLJOB.path("n"))(text)["object"]["spec"]
    refused = nesting.refusal(spec)
    assert refused.startswith("spec.trainer.podTemplate.a.a." if depth > nesting.DEEPEST else "")
    assert bool(refused) == (depth > nesting.DEEPEST)


@given(VALUES, AT)
def test_only_values_below_the_limit_are_cut(value: Any, at: str) -> None:
    left, right = ("[", "]") if at == "list" else ('{"a":', "}")
    text = json.dumps(value)
    assert nesting.shallow(text.encode()) == text.encode()
    deep = left * nesting.DEEPEST + text + right * nesting.DEEPEST
    kept = json.dumps(nesting.TOO_DEEP) if isinstance(value, dict | list) else text
    whole = left * nesting.DEEPEST + kept + right * nesting.DEEPEST
    assert nesting.shallow(deep.encode()).decode() == whole
    both = f"[{deep},{text}]"
    assert nesting.shallow(both.encode()).decode().endswith(f",{text}]")


def test_job_with_a_cut_spec_is_not_valid() -> None:
    api = ModelApi()
    spec = a_job()["spec"]
    spec["trainer"] = {"podTemplate": {"spec": {"a": [nesting.TOO_DEEP]}}}
    api.put(RLJOB, "job", spec=spec)
    snapshot = job_snapshot(api, Key(RLJOB.name, NAMESPACE, "job"))
    assert snapshot is not None
    assert snapshot.job.spec is None
    assert snapshot.job.spec_error.startswith("spec.trainer.podTemplate.spec.a[0]")
