"""One cluster for a machine, whatever its folders are; nothing is started or stopped here."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_local import cluster
from rl_local.control_plane import owner, processes
from rl_local.errors import LocalError
from rl_local.layout import Layout, locked, try_lock
from rl_local.system import debian


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(cache=tmp_path / "cache", state=tmp_path / "state", run=tmp_path / "run")


@pytest.fixture
def other(layout: Layout, tmp_path: Path) -> Layout:
    """Of the same machine, with folders of its own."""
    return dataclasses.replace(layout, cache=tmp_path / "cache-2", state=tmp_path / "state-2")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started, and which state folders were removed."""
    calls: list[str] = []

    def remove(layout: Layout) -> None:
        calls.append(f"removed {layout.state.name}")

    def ensure(layout: Layout, _components: object) -> list[str]:
        calls.append(f"started in {layout.state.name}")
        return []

    monkeypatch.setattr(debian, "require", lambda: None)
    monkeypatch.setattr(cluster, "_remove", remove)
    monkeypatch.setattr(processes, "ensure", ensure)
    return calls


def launch(layout: Layout) -> None:
    processes.record_path(layout, "etcd").parent.mkdir(parents=True)


@pytest.mark.parametrize(("name", "free"), [("cluster", False), ("registry", False), ("apt", True)])
def test_the_locks_of_the_machine_are_the_same_for_every_cache(
    layout: Layout, other: Layout, name: str, free: bool
) -> None:
    with locked(layout, name):
        assert (try_lock(other, name) is not None) == free


def test_a_second_cluster_is_refused_before_anything_is_started(
    layout: Layout, other: Layout, done: list[str]
) -> None:
    cluster.ensure_registry(layout)
    with pytest.raises(LocalError, match=f"RL_STATE={layout.state} make down"):
        cluster.ensure_registry(other)
    cluster.ensure_registry(layout)
    assert done == ["started in state", "started in state"]
    assert not other.state.exists()


def test_down_where_nothing_was_started_leaves_the_cluster_of_the_machine_alone(
    layout: Layout, other: Layout, done: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    owner.claim(layout)
    launch(layout)
    cluster.down(other)
    assert done == []
    assert f"nothing was started in {other.state}" in capsys.readouterr().err


@pytest.mark.parametrize("left", [owner.claim, launch], ids=["an interrupted up", "a restart"])
def test_down_removes_what_is_left(
    layout: Layout, done: list[str], left: Callable[[Layout], None]
) -> None:
    left(layout)
    cluster.down(layout)
    assert done == ["removed state"]


def test_down_of_an_earlier_cluster_waits_for_the_removal_of_the_present_one(
    layout: Layout, other: Layout, done: list[str]
) -> None:
    launch(other)
    owner.claim(layout)
    with pytest.raises(LocalError, match=f"is in {layout.state}, not in {other.state}"):
        cluster.down(other)
    owner.release(layout)
    cluster.down(other)
    assert done == ["removed state-2"]
