import dataclasses
from pathlib import Path

import pytest

from rl_local.build import binaries
from rl_local.errors import LocalError
from rl_local.layout import Layout


def test_key_follows_declaration_sources_and_compiler(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    code = tmp_path / "src/main.go"
    code.write_text("package main")
    binary = binaries.Binary(name="x", folder="src")

    def key(of: binaries.Binary = binary, compiler: str = "go1.26") -> str:
        return binaries.key(of, root=tmp_path, compiler=compiler)

    first = key()
    (tmp_path / "src/main_test.go").write_text("package main")
    assert key() == first
    changed = {key(compiler="go1.27"), key(dataclasses.replace(binary, tags="x"))}
    code.write_text("package main // changed")
    assert len({first, key(), *changed}) == 4


def test_digest_depends_on_the_borders_of_its_parts() -> None:
    assert binaries.digest([b"ab", b"c"]) != binaries.digest([b"a", b"bc"])


def test_an_unknown_program_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    layout = Layout(cache=tmp_path, state=tmp_path)
    with pytest.raises(
        LocalError, match=r"no program 'docker'; known programs: .*helm, krew, kubectl"
    ):
        binaries.tool(layout, "docker")


def test_links_move_to_the_newest(tmp_path: Path) -> None:
    layout = Layout(cache=tmp_path, state=tmp_path)
    for version in ("x-1", "x-2", "x-2"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / version).touch()
        binaries.link(layout.tools / "x", tmp_path / "bin" / version)
        assert (layout.tools / "x").resolve() == tmp_path / "bin" / version
