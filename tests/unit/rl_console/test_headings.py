"""Kind, version and metadata of a manifest; `test_validate.py` asks the API server about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_console.actions.initiation import manifest_of
from rl_console.actions.submitting import InvalidError, report
from rl_console.errors import UsageError
from rl_console.manifests.checks import problems
from rl_console.manifests.files import read_all
from tests.samples.manifests import a_job
from tests.unit.rl_console.test_manifests import ANSWERS

OTHER = "kind: ConfigMap\nmetadata: {name: other}\n"
HEADING = "apiVersion: rl-operator.io/v1alpha1\nmetadata: {name: sums}\n"


def reported(folder: Path, text: str) -> tuple[list[str], str]:
    """The lines of a report, and the error after them."""
    file = folder / "x.yaml"
    file.write_text(text)
    lines: list[str] = []
    with pytest.raises(InvalidError) as raised:
        lines.extend(line.replace(str(file), "x.yaml") for line in report(read_all([file])))
    return lines, str(raised.value).replace(str(file), "x.yaml")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (OTHER, "ConfigMap"),
        ("metadata: {name: sums}", "missing"),
        ("kind: Job\n---\nkind: Job", "Job"),
    ],
)
def test_a_file_with_nothing_to_check_is_no_good_file(text: str, kind: str, tmp_path: Path) -> None:
    error = reported(tmp_path, text)[1].replace("'", "").replace('"', "")
    assert error.startswith(f"x.yaml holds no RLJob or SamplerPool: kind is {kind}. Write kind:")


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        (HEADING + "kind: rljob\n", "write RLJob"),
        (HEADING + "kind: RLJobs\n", "write RLJob"),
        ("kind: samplerpools\nmetadata: {name: sums}\n", "write SamplerPool"),
        (HEADING + "kind: Job\n", "write RLJob or SamplerPool"),
        (HEADING, "kind: is missing: write RLJob or SamplerPool"),
    ],
)
def test_what_is_meant_for_us_is_checked_beside_other_kinds(
    heading: str, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"{OTHER}---\n{heading}")
    other, ours = read_all([file])
    assert (other.ours, ours.ours) == (False, True)
    assert str(problems(ours.manifest)[0]).endswith(line)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"suspend": True}, "suspend: is no field here: it belongs under spec"),
        ({"foo": 1}, "foo: is no field. Fields here: apiVersion, kind, metadata, spec, status"),
        ({"status": {"phase": "Running"}}, ""),
    ],
)
def test_fields_beside_spec_are_those_of_an_object(change: dict[str, Any], problem: str) -> None:
    assert [str(each) for each in problems(a_job() | change)] == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"name": 7}, "metadata.name: must be of type string"),
        ({"namespace": "A_b"}, "metadata.namespace: is "),
        ({"lables": {}}, "metadata.lables: is no field. Fields here: annotations, "),
        ({"labels": {"version": 7}}, "metadata.labels.version: must be of type string, and is 7"),
        ({"labels": {"a": "-"}}, "metadata.labels.a: is "),
        ({"labels": {"a b": "c"}}, "metadata.labels.a b: the name "),
        ({"labels": {"x_y/z": "c"}}, "metadata.labels.x_y/z: "),
        ({"labels": ["a"]}, "metadata.labels: must be of type object"),
        ({"annotations": {"a": True}}, "metadata.annotations.a: must be of type string"),
        ({"annotations": {"a": "x" * 300_000}}, "metadata.annotations: has 300001 bytes"),
    ],
)
def test_metadata_is_refused_by_its_field(metadata: dict[str, Any], problem: str) -> None:
    manifest = a_job()
    (refusal,) = problems(manifest | {"metadata": manifest["metadata"] | metadata})
    assert str(refusal).startswith(problem)


def test_a_scorer_that_no_sampler_knows_is_refused_as_the_operator_refuses_it() -> None:
    reward = {"scorers": [{"kind": "ExactMatch"}, {"kind": "Mathh"}]}
    (refusal,) = problems(a_job(reward=reward))
    assert refusal.field == "spec.reward.scorers[1].kind"
    assert "The samplers know no scorer of this kind. Use one of Code, " in refusal.message
    of_another_image = [{"name": "main", "template": {"image": "mine"}}]
    assert problems(a_job(reward=reward, samplers=of_another_image)) == []


def test_a_first_manifest_has_a_scorer_that_there_is() -> None:
    with pytest.raises(UsageError, match=r"scorers\[0\]\.kind: is .Mathh.*Use one of Code"):
        manifest_of(replace(ANSWERS, scorer="Mathh"))
