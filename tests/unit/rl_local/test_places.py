"""The folders that the cluster shares with other programs, in a folder of the test's own."""

import json
from pathlib import Path

import pytest

from rl_local.layout import Layout
from rl_local.system import places, records

KUBELET, CONTAINERD = "var/lib/kubelet", "run/containerd"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Of a machine without any of the folders and without other programs."""
    fixed = tuple(tmp_path / name for name in (KUBELET, CONTAINERD))
    monkeypatch.setattr(places, "FIXED_PLACES", fixed)
    monkeypatch.setattr(places, "POD_LOG_LINKS", tmp_path / "none")
    monkeypatch.setattr(places, "VOLATILE", tmp_path / "run")
    monkeypatch.setattr(places, "PROC", tmp_path / "proc")
    monkeypatch.setattr(records, "BOOT_ID", tmp_path / "boot_id")
    boot(tmp_path, "first")
    return Layout(cache=tmp_path / "cache", state=tmp_path / "state")


def boot(machine: Path, name: str) -> None:
    (machine / "boot_id").write_text(f"{name}\n")


def run(machine: Path, name: str, *, state: str = "S", arguments: str = "--root /") -> None:
    process = machine / "proc/7"
    process.mkdir(parents=True)
    (process / "comm").write_text(f"{name}\n")
    (process / "cmdline").write_text(arguments.replace(" ", "\0"))
    (process / "stat").write_text(f"7 ({name}) {state} 1 {'0 ' * 30}\n")


def make(machine: Path, *names: str) -> None:
    for name in names:
        (machine / name).mkdir(parents=True)
        (machine / name / "data").write_text("kept")


def there(machine: Path) -> set[str]:
    return {name for name in (KUBELET, CONTAINERD) if (machine / name / "data").exists()}


def test_only_folders_that_were_not_there_are_removed(layout: Layout, tmp_path: Path) -> None:
    make(tmp_path, KUBELET)
    places.remember(layout)
    make(tmp_path, CONTAINERD)
    places.remember(layout)
    places.remove(layout)
    assert there(tmp_path) == {KUBELET}


def test_a_folder_that_another_program_made_after_a_restart_stays(
    layout: Layout, tmp_path: Path
) -> None:
    places.remember(layout)
    make(tmp_path, KUBELET)
    boot(tmp_path, "second")
    make(tmp_path, CONTAINERD)
    places.remove(layout)
    assert there(tmp_path) == {CONTAINERD}


@pytest.mark.parametrize(("before", "stays"), [(True, {CONTAINERD}), (False, set())])
def test_a_start_after_a_restart_notes_the_emptied_folders_again(
    layout: Layout, tmp_path: Path, before: bool, stays: set[str]
) -> None:
    places.remember(layout)
    make(tmp_path, KUBELET)
    boot(tmp_path, "second")
    if before:
        make(tmp_path, CONTAINERD)
    places.remember(layout)
    if not before:
        make(tmp_path, CONTAINERD)
    places.remove(layout)
    assert there(tmp_path) == stays


@pytest.mark.parametrize("name", places.USERS)
def test_folders_stay_while_another_program_uses_them(
    layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    places.remember(layout)
    make(tmp_path, KUBELET, CONTAINERD)
    run(tmp_path, name)
    places.remove(layout)
    assert there(tmp_path) == {KUBELET, CONTAINERD}
    said = capsys.readouterr().err
    assert f"{name} (process 7)" in said
    assert str(tmp_path / KUBELET) in said


def test_a_folder_that_another_program_uses_at_a_start_after_a_restart_is_not_ours(
    layout: Layout, tmp_path: Path
) -> None:
    places.remember(layout)
    make(tmp_path, KUBELET)
    boot(tmp_path, "second")
    run(tmp_path, "kubelet")
    places.remember(layout)
    (tmp_path / "proc/7/comm").write_text("sh\n")
    places.remove(layout)
    assert there(tmp_path) == {KUBELET}


def test_a_process_that_has_ended_uses_no_folder(layout: Layout, tmp_path: Path) -> None:
    places.remember(layout)
    make(tmp_path, KUBELET, CONTAINERD)
    run(tmp_path, "containerd", state="Z")
    places.remove(layout)
    assert there(tmp_path) == set()


def test_programs_of_this_cluster_are_no_others(layout: Layout, tmp_path: Path) -> None:
    make(tmp_path, KUBELET)
    layout.state.mkdir()
    (layout.state / "places.json").write_text(json.dumps([str(tmp_path / KUBELET)]))
    run(tmp_path, "containerd", arguments=f"--config {layout.state}/containerd.toml")
    places.remember(layout)  # by a release that reads the note of an earlier one
    places.remove(layout)
    assert there(tmp_path) == set()


def test_the_note_of_an_earlier_version_has_no_boot(layout: Layout, tmp_path: Path) -> None:
    layout.state.mkdir()
    make(tmp_path, KUBELET, CONTAINERD)
    noted = [str(tmp_path / name) for name in (KUBELET, CONTAINERD)]
    (layout.state / "places.json").write_text(json.dumps(noted))
    places.remove(layout)
    assert there(tmp_path) == {CONTAINERD}
