from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from rl_console.actions.comparing import compare
from rl_console.actions.curves import with_curves
from rl_console.actions.initiation import Answers, ask, manifest_of
from rl_console.errors import UsageError
from rl_console.invocation import Invocation
from rl_console.manifests.cel import without_optionals
from rl_console.manifests.checks import fill_defaults, problems
from rl_console.manifests.files import read
from rl_console.manifests.structure import differences

ANSWERS = Answers(
    name="sums", model="hf://org/name", train="s3://bucket/train.jsonl", query="q", scorer="Math"
)


@pytest.mark.parametrize(
    ("written", "rewritten"),
    [
        ("self.?k.orValue(2) > 1", "(has(self.k) ? self.k : (2)) > 1"),
        (
            "self.a.?b.c.orValue(f(1))",
            "(has(self.a.b) && has(self.a.b.c) ? self.a.b.c : (f(1)))",
        ),
        (
            "x.?a.orValue(1) == y.?b.orValue(2)",
            "(has(x.a) ? x.a : (1)) == (has(y.b) ? y.b : (2))",
        ),
    ],
)
def test_optional_fields_are_rewritten(written: str, rewritten: str) -> None:
    assert without_optionals(written) == rewritten


def test_a_pattern_ends_at_the_end_of_the_text() -> None:
    """Python's `$` would admit a final newline, and Go's does not."""
    schema = {"type": "string", "pattern": "^[a-z]+$"}
    assert list(differences(schema, "abc", "f")) == []
    assert list(differences(schema, "abc\n", "f"))


def test_defaults_are_filled_in_from_the_outside() -> None:
    inner = {"type": "object", "default": {}, "properties": {"b": {"default": 3}}}
    value: dict[str, object] = {"list": [{}]}
    fill_defaults(
        {"properties": {"a": inner, "list": {"items": {"properties": {"c": {"default": 1}}}}}},
        value,
    )
    assert value == {"a": {"b": 3}, "list": [{"c": 1}]}


def test_answers_make_a_valid_manifest() -> None:
    manifest = manifest_of(ANSWERS)
    assert problems(manifest) == []
    assert manifest["spec"]["data"]["train"][0]["columns"] == {"query": "q"}


def test_answers_that_would_be_refused_are_refused_by_their_field() -> None:
    with pytest.raises(UsageError, match=r"spec\.model\.uri"):
        manifest_of(Answers(name="a", model="nowhere", train="s3://bucket/x", scorer="Math"))


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError, match=r"NAME, --model, --train must be given"):
        ask(Answers())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_answer_is_checked_when_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("Sums", "sums", "Qwen/Qwen3-8B", " hf://Qwen/Qwen3-8B ", "a.csv", "s3://b-c/a.json")
    monkeypatch.setattr("sys.stdin", Terminal("\n".join([*given, "", "Mathh", "Math", ""])))
    answers = ask(Answers())
    assert (answers.name, answers.model, answers.train) == (given[1], given[3].strip(), given[5])
    assert (answers.query, answers.scorer) == ("query", "Math")
    written = capsys.readouterr()
    refused = (written.out + written.err).split("Error: ")[1:]
    assert [line.split(":")[0].split(" must")[0] for line in refused] == [
        "metadata.name",
        "spec.model.uri",
        "spec.data.train[0].uri",
        "spec.reward.scorers[0].kind",
    ]
    assert "If it is on the hub, write hf://Qwen/Qwen3-8B\n" in refused[1]


def test_options_are_compared_by_name_not_by_place() -> None:
    first = {"samplers": [{"name": "a", "x": 1}, {"name": "b", "x": 2}], "same": 1}
    second = {"samplers": [{"name": "b", "x": 2}, {"name": "a", "x": 3}], "same": 1, "new": [1]}
    listing = compare(("one", first), ("two", second))
    assert listing.rows == [("samplers[a].x", "1", "3"), ("new", "–", "[1]")]


def test_a_manifest_has_no_curves() -> None:
    options = compare(("sums", {}), ("sums.yaml", {}))
    with pytest.raises(UsageError, match=r"sums\.yaml is a manifest and has no curves"):
        with_curves(
            Invocation(), options, ("sums", "sums.yaml"), ["kl"], operator_namespace="rl-system"
        )


def test_lists_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: List\nitems: [{kind: A}, {kind: B}]\n---\n")
    (tmp_path / "b.json").write_text('{"kind": "C"}')
    (tmp_path / "notes.txt").write_text("no manifest")
    assert [each.manifest["kind"] for each in read([tmp_path])] == ["A", "B", "C"]


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "\x00"])
def test_what_is_no_manifest_is_refused_with_its_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"x\.yaml"):
        read([file])


def test_numbers_and_dates_of_a_file_are_those_that_kubectl_reads(tmp_path: Path) -> None:
    """A rate without a point is a number, 10.0 an integer, and a label like a date a text."""
    manifest = manifest_of(ANSWERS)
    manifest["metadata"]["labels"] = {"since": "DATE"}
    manifest["spec"]["training"] = {"steps": 10.0, "optimizer": {"learningRate": "RATE"}}
    written = json.dumps(manifest).replace('"DATE"', "2024-01-01").replace('"RATE"', "1e-6")
    (tmp_path / "x.yaml").write_text(f"# YAML\n{written}")
    (document,) = read([tmp_path / "x.yaml"])
    assert problems(document.manifest) == []
    assert document.manifest["metadata"]["labels"] == {"since": "2024-01-01"}


HUB, BUCKET = "hf://org/name/data/", "s3://abc/tasks/"


@pytest.mark.parametrize(
    ("uri", "form", "valid"),
    [
        (HUB, "Records", True),
        (HUB, "Harbor", False),
        (BUCKET, "Records", False),
        (BUCKET, "Harbor", True),
        ("s3://abc/a.jsonl", "Harbor", False),
    ],
)
def test_folders_of_tasks_are_of_a_bucket_and_folders_of_records_of_the_hub(
    uri: str, form: str, valid: bool
) -> None:
    manifest = manifest_of(ANSWERS)
    manifest["spec"]["data"]["train"] = [{"name": "a", "uri": uri, "format": form}]
    fields = [problem.field for problem in problems(manifest)]
    assert ("spec.data.train[0].uri" not in fields) is valid
