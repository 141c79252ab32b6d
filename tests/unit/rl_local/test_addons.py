"""Volumes in a folder of the test's own, with a program in the place of kubectl."""

import os
from pathlib import Path

import pytest

from rl_local import addons
from rl_local.control_plane import kubernetes
from rl_local.layout import Layout


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Of a cluster with one released volume, without the right to change owners."""
    made = Layout(cache=tmp_path / "cache", state=tmp_path / "state")
    kubectl = made.tools / "kubectl"
    kubectl.parent.mkdir(parents=True)
    kubectl.write_text(f"#!/bin/sh\necho $* >> {tmp_path / 'calls'}\n")
    kubectl.chmod(0o755)
    volume = {
        "metadata": {"name": "local-0"},
        "status": {"phase": "Released"},
        "spec": {"storageClassName": "local"},
    }
    monkeypatch.setattr(kubernetes, "get", lambda *_: {"items": [volume]})
    monkeypatch.setattr(os, "chown", lambda *_: None)
    return made


@pytest.mark.parametrize("removed", [False, True], ids=["full", "removed by an interrupted run"])
def test_a_released_volume_is_emptied_and_offered_again(
    layout: Layout, tmp_path: Path, removed: bool
) -> None:
    folder = layout.state / "volumes/local-0"
    if not removed:
        (folder / "old").mkdir(parents=True)
    assert addons.recycle_volumes(layout) == ["local-0"]
    assert list(folder.iterdir()) == []
    assert "patch pv local-0" in (tmp_path / "calls").read_text()
