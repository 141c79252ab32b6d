from pathlib import Path

from rl_local.build import pip


def test_variables_win_over_files_and_later_files_over_earlier() -> None:
    weak = "[global]\ntimeout = 1\nindex-url = weak\n[install]\nprefer-binary = true\n"
    strong = "[global]\nindex-url = strong\n"
    environment = {"PIP_TIMEOUT": "9", "PIP_CONFIG_FILE": "/x", "PIP_PRE": "", "HOME": "/root"}
    merged = pip.merged([weak, strong], environment)
    assert merged.split("\n\n")[0].splitlines() == [
        "[global]",
        "timeout = 9",
        "index-url = strong",
        f"cache-dir = {pip.CACHE_IN_BUILD}",
    ]
    assert "[install]\nprefer-binary = true" in merged
    assert "config-file" not in merged


def test_files_are_read_in_the_order_of_pip(tmp_path: Path) -> None:
    user = tmp_path / ".config/pip/pip.conf"
    named = tmp_path / "named.conf"
    user.parent.mkdir(parents=True)
    user.touch()
    named.touch()
    files = pip.config_files({"PIP_CONFIG_FILE": str(named)}, tmp_path)
    assert files[-2:] == [user, named]


def test_a_build_sees_named_files_under_neutral_names(tmp_path: Path) -> None:
    wheels, bundle, empty = tmp_path / "wheels", tmp_path / "bundle.crt", tmp_path / "empty"
    wheels.mkdir()
    (wheels / "x.whl").touch()
    empty.mkdir()
    bundle.touch()
    environment = {
        "PIP_FIND_LINKS": f"{wheels} file://{wheels} /nowhere/at/all {empty}",
        "PIP_CERT": str(bundle),
        "PIP_LOG": "/nowhere/log",
        "PIP_TIMEOUT": "7",
    }
    config, mounts = pip.relocate(pip.merged([], environment))
    assert mounts == {"/mnt/pip-0": bundle, "/mnt/pip-1": wheels}
    assert config.strip().splitlines() == [
        "[global]",
        "cert = /mnt/pip-0",
        "find-links = /mnt/pip-1",
        "\tfile:///mnt/pip-1",
        "timeout = 7",
        f"cache-dir = {pip.CACHE_IN_BUILD}",
    ]
    assert str(tmp_path) not in config
