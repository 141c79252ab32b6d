from pathlib import Path

from rl_local import pip


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
    found = pip.config_files({"PIP_CONFIG_FILE": str(named)}, tmp_path)
    assert found[-2:] == [user, named]


def test_a_build_sees_the_files_that_the_configuration_names(tmp_path: Path) -> None:
    wheels, bundle = tmp_path / "wheels", tmp_path / "bundle.crt"
    wheels.mkdir()
    bundle.touch()
    environment = {
        "PIP_FIND_LINKS": f"{wheels} file://{wheels} /nowhere/at/all",
        "PIP_CERT": str(bundle),
    }
    assert pip.named_paths(pip.merged([], environment)) == [bundle, wheels]
