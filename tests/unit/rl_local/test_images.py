import os
from pathlib import Path

import pytest

from rl_local.build import image_builds, images
from rl_local.errors import LocalError
from rl_local.layout import ROOT


@pytest.mark.parametrize(
    ("dockerfile", "expected"),
    [
        ("FROM scratch\n", []),
        ("COPY a b /dest/\n", ["a", "b"]),
        ("copy --chown=1:1 operator/ /x\nADD artifacts/x.tar /\n", ["operator", "artifacts/x.tar"]),
        ("COPY one \\\n  two \\\n  /dest/\n", ["one", "two"]),
        ("COPY --from=builder /bin/x /x\nRUN COPY nothing\n", []),
        ("COPY a /x\nCOPY a /y\n", ["a"]),
    ],
)
def test_sources_are_what_copy_and_add_name(dockerfile: str, expected: list[str]) -> None:
    assert images.sources(dockerfile, where="Dockerfile") == expected


@pytest.mark.parametrize(
    "source", [".", "./a", "../a", "/a", "a/*.py", "${X}", "https://x/y", '["a"']
)
def test_sources_that_do_not_say_which_files_are_refused(source: str) -> None:
    with pytest.raises(LocalError, match="plain path"):
        images.sources(f"COPY {source} /dest\n", where="Dockerfile")


def test_context_holds_the_named_files_and_no_caches(tmp_path: Path) -> None:
    for name in ("pkg/a.py", "pkg/sub/b.py", "pkg/__pycache__/a.pyc", "pkg/c.pyc", "other/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "Dockerfile").write_text("COPY pkg /pkg\nCOPY artifacts/tool /tool\n")
    image = images.Image(name="x", dockerfile="Dockerfile")
    context = images.context(tmp_path, image, lambda name: tmp_path / f"{name}-key")
    assert sorted(context) == ["artifacts/tool", "pkg/a.py", "pkg/sub/b.py"]
    assert context["artifacts/tool"] == tmp_path / "tool-key"


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="nothing"):
        images.files_of(tmp_path, "nothing")


def test_tag_changes_with_every_input_and_with_nothing_else(tmp_path: Path) -> None:
    code = tmp_path / "a.py"
    code.write_text("1")
    code.chmod(0o644)
    files = {"a.py": code}
    first = images.tag("FROM scratch", files, "base")
    code.write_text("1")
    os.utime(code, (1, 1))
    code.chmod(0o600)
    assert images.tag("FROM scratch", files, "base") == first
    others = {
        "dockerfile": images.tag("FROM scratch ", files, "base"),
        "base": images.tag("FROM scratch", files, "base2"),
        "name": images.tag("FROM scratch", {"b.py": code}, "base"),
        "artifact": images.tag("FROM scratch", {**files, "artifacts/t": tmp_path / "t-1"}, "base"),
        "artifact key": images.tag(
            "FROM scratch", {**files, "artifacts/t": tmp_path / "t-2"}, "base"
        ),
    }
    code.chmod(0o755)
    others["mode"] = images.tag("FROM scratch", files, "base")
    code.write_text("2")
    others["content"] = images.tag("FROM scratch", files, "base")
    assert len({first, *others.values()}) == len(others) + 1


def test_every_declared_base_is_an_image_and_receives_its_argument() -> None:
    for image in (*images.IMAGES.values(), *images.ON_DEMAND_IMAGES.values()):
        assert not image.base or image.base in images.IMAGES
        path = ROOT / image.dockerfile
        text = path.read_text()
        assert bool(image.base) == ("ARG BASE_IMAGE" in text), image.dockerfile
        images.sources(text, where=image.dockerfile)


def test_select_of_an_unknown_image_names_the_known_images() -> None:
    assert [image.name for image in images.select(["torch", "base"])] == ["torch", "base"]
    with pytest.raises(LocalError, match=r"no image nope; known images: base, .*trainer"):
        images.select(["base", "nope"])


def test_staged_files_have_fixed_modes_and_times(tmp_path: Path) -> None:
    source, tool = tmp_path / "a.py", tmp_path / "tool-key"
    source.write_text("x")
    source.chmod(0o600)
    tool.write_text("y")
    tool.chmod(0o755)
    context = tmp_path / "context"
    image_builds.stage({"pkg/a.py": source, "artifacts/tool": tool}, context)
    staged = context / "pkg/a.py"
    assert (staged.read_text(), staged.stat().st_mode & 0o777) == ("x", 0o644)
    assert staged.stat().st_mtime == image_builds.CONTEXT_TIME == staged.parent.stat().st_mtime
    assert (context / "artifacts/tool").samefile(tool)
