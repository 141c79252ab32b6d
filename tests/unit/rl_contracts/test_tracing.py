"""What holds of traces without the packages that send them."""

from __future__ import annotations

import sys

import pytest

from rl_contracts import tracing
from rl_contracts.errors import RefusedError
from rl_contracts.spec.training.tracking import Traces
from rl_contracts.tracing import EXPORTER, Ids, Untraced, tracing_of

SECTION = Traces(endpoint="http://collector:4318/v1/traces")


def test_ids_follow_from_the_rollout_and_are_those_of_the_docs() -> None:
    ids = Ids.of("r-0-1-0")
    assert f"{ids.trace:032x}" == "c755e2c8e37912c0da9aeb33a2be7742"
    assert 0 < ids.span < 1 << 64
    assert Ids.of("r-0-1-1") != ids


def test_nothing_is_traced_unless_the_manifest_asks() -> None:
    traced = tracing_of(None, service="s", about={})
    assert isinstance(traced, Untraced)
    with traced.rollout("r", ago=1.0) as facts, tracing.span("inside") as inner:
        facts["a"], inner["b"] = 1, 2
        tracing.ended("sample", seconds=1.0)
        assert tracing.variables() == {}
    traced.later("r", "train", seconds=1.0)
    assert not traced.traces("r")
    traced.close()


def test_missing_packages_are_refused_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    with pytest.raises(RefusedError, match="cannot send traces") as refused:
        tracing_of(SECTION, service="s", about={})
    assert refused.value.refusal.field == "spec.training.tracking.traces"
    assert "opentelemetry-exporter-otlp-proto-http" in refused.value.refusal.remedy
