"""Installation of Debian packages, with programs in the place of apt-get and dpkg-query."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rl_local import venv
from rl_local.errors import CommandFailedError, LocalError
from rl_local.layout import Layout
from rl_local.system import debian

APT_GET = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in
  install*--no-remove*) cat {plan}; test ! -e {plan};;
esac
"""
DPKG_QUERY = """#!/bin/sh
case "$*" in
  --listfiles*containerd*) printf '%s\\n' /usr/bin/containerd {folder}/containerd.service \\
    /usr/share/doc/containerd/other.service {folder}/containerd.socket {folder}/containerd.timer;;
esac
exit 1
"""
REFUSED = """Reading package lists...
The following packages will be REMOVED:
  containerd.io docker-ce
  docker-compose-plugin*
The following NEW packages will be installed:
  containerd runc
E: Packages need to be removed but remove is disabled.
"""


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Of a Debian without packages, whose apt-get answers with the file ``plan``."""
    programs = tmp_path / "programs"
    programs.mkdir()
    texts = {
        "apt-get": APT_GET.format(calls=tmp_path / "calls", plan=tmp_path / "plan"),
        "dpkg-query": DPKG_QUERY.format(folder=debian.UNIT_FOLDERS[0]),
    }
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(debian, "APT", programs / "apt-get")
    monkeypatch.setattr(debian, "POLICY", tmp_path / "policy-rc.d")
    monkeypatch.setattr(debian, "ENABLED", tmp_path / "enabled")
    monkeypatch.setenv("RL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return Layout(cache=tmp_path / "cache", state=tmp_path / "state")


def test_installed_packages_are_never_removed_and_the_message_names_them(
    layout: Layout, tmp_path: Path
) -> None:
    (tmp_path / "plan").write_text(REFUSED)
    named = r"would remove containerd\.io, docker-ce, docker-compose-plugin to install containerd"
    with pytest.raises(LocalError, match=named) as refused:
        debian.install(layout, ["containerd", "runc"])
    assert "CONTEXT=" in str(refused.value)
    assert "--no-remove" in (tmp_path / "calls").read_text()


def test_another_failure_of_apt_shows_its_log(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "plan").write_text("E: Unable to locate package runc\n")
    with pytest.raises(CommandFailedError, match="Unable to locate package runc"):
        debian.install(layout, ["runc"])


def test_a_python_without_ensurepip_gets_debians_package(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setattr(venv, "_has_ensurepip", lambda: calls.exists())
    venv.require_ensurepip()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert calls.read_text().splitlines()[-1].split()[-1] == f"python{version}-venv"


def test_without_root_one_line_names_the_missing_package(
    layout: Layout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(venv, "_has_ensurepip", lambda: False)
    monkeypatch.setattr("sys.argv", ["venv", "--demo"])
    assert venv.main() == 1
    assert not (tmp_path / "calls").exists()
    (_, line) = capsys.readouterr().err.splitlines()
    assert line.startswith("venv: ")
    assert re.search(r"ensurepip is missing\..*apt-get install python3\.\d+-venv", line)


def enable(tmp_path: Path) -> list[Path]:
    """What Debian's scripts do for the services of a package; one is of another package."""
    links = [
        tmp_path / "enabled" / folder / name
        for folder, name in (
            ("multi-user.target.wants", "containerd.service"),
            ("sockets.target.wants", "containerd.socket"),
            ("multi-user.target.wants", "ssh.service"),
        )
    ]
    for link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(debian.UNIT_FOLDERS[0] / link.name)
    return links


def enabled(links: list[Path]) -> list[str]:
    return [link.name for link in links if link.is_symlink()]


def test_services_of_installed_packages_do_not_start_at_boot(
    layout: Layout, tmp_path: Path
) -> None:
    links = enable(tmp_path)
    debian.install(layout, ["containerd", "runc"])
    assert enabled(links) == ["ssh.service"]


def test_services_of_an_interrupted_installation_are_disabled_by_the_next_run(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = enable(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(debian, "_disable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            debian.install(layout, ["containerd"])
    monkeypatch.setattr(debian, "missing", lambda packages: [])
    debian.install(layout, ["containerd"])
    assert enabled(links) == ["ssh.service"]
    links[2].unlink()
    links = enable(tmp_path)
    debian.install(layout, ["containerd"])
    assert len(enabled(links)) == 3, "what the user enables later stays"


def interrupted(names: object) -> None:
    raise KeyboardInterrupt


def test_services_of_packages_that_were_there_are_left_alone(
    layout: Layout, tmp_path: Path
) -> None:
    query = tmp_path / "programs/dpkg-query"
    query.write_text("#!/bin/sh\necho containerd installed\n")
    debian.install(layout, ["containerd"])
    assert not (tmp_path / "calls").exists()
