from pathlib import Path

from rl_local.layout import Layout
from rl_local.system import scratch


def test_a_scratch_folder_is_empty_and_removed_with_its_block(tmp_path: Path) -> None:
    layout = Layout(cache=tmp_path, state=tmp_path)
    with scratch.folder(layout, "x-1.2") as folder:
        assert list(folder.iterdir()) == []
        (folder / "sub").mkdir()
        scratch.remove_stale(layout)
        assert folder.is_dir(), "its maker lives"
    assert not folder.exists()


def test_only_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    layout = Layout(cache=tmp_path, state=tmp_path)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    for name in (f"x.{most + 1}", "y", "z.1"):
        (layout.scratch / name).mkdir(parents=True)
    scratch.remove_stale(layout)
    assert [path.name for path in layout.scratch.iterdir()] == ["z.1"]
