"""Any text that a user or a log can hold survives every kind of write to the API server."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rl_operator.kube import kinds
from tests.contract.rl_operator.world import World

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""All of Unicode but halves of surrogate pairs, which no UTF-8 text has."""
HARD = (
    "rocket 🚀 and 🤗",
    "del \x7f, C1 \x80\x85\x9f, no-break \xa0",
    "line \u2028 and paragraph \u2029 separators",
    "byte order \ufeff, non-characters \ufffe\uffff\U0001fffe\U0010ffff",
    'quotes " and \\ and \ttabs\r\n, nul \x00',
    "# not: a comment, - nor a list, %YAML",
)


def _write(world: World, text: str) -> str:
    """The text as the API server returns it after a server-side apply."""
    metadata = {"name": "unicode", "namespace": world.namespace, "annotations": {"text": text}}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"t": text}}
    world.cluster.apply(kinds.CONFIG_MAP, manifest, manager="test")
    stored = world.cluster.get(kinds.CONFIG_MAP, world.namespace, "unicode")
    assert stored is not None
    assert stored["metadata"]["annotations"]["text"] == text
    return str(stored["data"]["t"])


@pytest.mark.parametrize("text", HARD)
def test_text_survives_a_server_side_apply(world: World, text: str) -> None:
    assert _write(world, text) == text


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=TEXT)
@example(text=HARD[0])
def test_any_text_survives_a_server_side_apply(world: World, text: str) -> None:
    assert _write(world, text) == text
