"""What a file holds in place of objects is told with its place, beside the others' errors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from rl_console.actions.comparing import specs_of
from rl_console.actions.submitting import problem_lines
from rl_console.errors import UsageError
from rl_console.invocation import Invocation
from rl_console.manifests.checks import problems
from rl_console.manifests.files import STANDARD_INPUT, read, read_all, text_of


def lines_of(folder: Path, text: str) -> list[str]:
    file = folder / "x.yaml"
    file.write_text(text)
    lines = [line for each in read_all([file]) for line in problem_lines(each)]
    return [line.replace(str(file), "x.yaml") for line in lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("- 1", ["x.yaml is a list, not an object"]),
        ("7", ["x.yaml is a number, not an object"]),
        ("kind: A\n---\nkind: B\n---\n- 1\n---\nkind: C\n", ["(line 5) is a list, not an object"]),
        (
            '{"kind": "List", "items": ["a", {"kind": "B"}, null]}',
            [
                "x.yaml: item 1 of the List is text, not an object",
                "x.yaml: item 3 of the List is null, not an object",
            ],
        ),
        ("kind: List\nitems: []", ["x.yaml: the List has no items"]),
        ("kind: List\nitems: a", ["x.yaml: items of the List is text, not a list"]),
        ("kind: List\nitems: {a: b}", ["x.yaml: items of the List is an object, not a list"]),
        (
            "kind: RLJobList\nitems: [no]",
            ["x.yaml: item 1 of the List is a boolean, not an object"],
        ),
    ],
)
def test_what_is_no_object_is_told_with_its_place(
    text: str, lines: list[str], tmp_path: Path
) -> None:
    printed = lines_of(tmp_path, text)
    assert len(printed) == len(lines)
    assert all(line.endswith(expected) for line, expected in zip(printed, lines, strict=True))


def test_errors_of_other_documents_are_told_beside_it(tmp_path: Path) -> None:
    printed = lines_of(tmp_path, "kind: RLJob\n---\n- 1\n---\nkind: SamplerPool\n")
    assert printed[0].startswith("x.yaml: RLJob: ")
    assert "document 2 of x.yaml (line 3) is a list, not an object" in printed
    assert printed[-1].startswith("x.yaml: SamplerPool: ")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n---\n"])
def test_a_file_without_an_object_is_empty(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"x\.yaml is empty\. Write a manifest"):
        read_all([file])
    with pytest.raises(UsageError, match=r"^each file of .* is empty\. Write a manifest"):
        read_all([tmp_path])


def test_standard_input_may_be_empty_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match=r"^standard input is empty\."):
        read_all([STANDARD_INPUT])


def test_a_folder_without_a_manifest_is_told_what_was_searched(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "x.yaml").write_text("kind: A")
    message = r"^no \.yaml, \.yml or \.json in .* \(subfolders are not searched\)\."
    with pytest.raises(UsageError, match=message):
        read_all([tmp_path])


def test_a_file_that_cannot_be_read_is_told_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes("kind: A".encode("utf-16"))
    (tmp_path / "folder.yaml").mkdir()
    for name, cause in (
        ("x.yaml", r"x\.yaml is not text in UTF-8\. Save it as UTF-8$"),
        ("nope.yaml", r"nope\.yaml does not exist\. Correct the path$"),
        ("folder.yaml", r"folder\.yaml cannot be read: Is a directory$"),
    ):
        with pytest.raises(UsageError, match=cause):
            text_of(tmp_path / name)


def test_where_objects_are_needed_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("[1]")
    with pytest.raises(UsageError, match=r"x\.yaml is a list, not an object\. Correct it there"):
        read([tmp_path / "x.yaml"])


@pytest.mark.parametrize("spec", ["text", "7", "[a]"])
def test_a_spec_that_is_no_object_is_not_compared(spec: str, tmp_path: Path) -> None:
    file = str(tmp_path / "x.yaml")
    (tmp_path / "x.yaml").write_text(f"kind: RLJob\nspec: {spec}\n")
    with pytest.raises(UsageError, match=r"x\.yaml: spec is no object"):
        specs_of(Invocation(), file, file)


@pytest.mark.parametrize(
    "changed", [{"kind": ["RLJob"]}, {"metadata": "text"}, {"metadata": {"name": 10**30}}]
)
def test_a_heading_of_any_type_is_checked(changed: dict[str, Any]) -> None:
    heading = {"apiVersion": "rl-operator.io/v1alpha1", "kind": "RLJob", "metadata": {"name": "a"}}
    assert problems(heading | changed)
