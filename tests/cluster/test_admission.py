"""What the API server refuses by itself, with a message that names the field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.cluster.manifests import job

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("unknown-field", {"training__stepz": 3}, 'unknown field "spec.training.stepz"'),
    ("group-of-one", {"algorithm__groupSize": 1}, "groupSize must be at least 2"),
    ("no-steps", {"training__steps": 0}, "spec.training.steps"),
    ("negative-steps", {"training__steps": -5}, "spec.training.steps"),
    ("negative-staleness", {"algorithm__offPolicy__maxStaleness": -1}, "maxStaleness"),
    ("negative-rate", {"training__optimizer__learningRate": -0.1}, "learningRate"),
    ("cold", {"agent__sampling__temperature": 0.0}, "temperature"),
    ("many-tokens", {"agent__sampling__maxTokensPerTurn": 64}, "must be smaller than"),
    ("late-evaluation", {"training__evaluation__everySteps": 61}, "must not exceed steps"),
    ("no-validation", {"data__validation": []}, "needs data.validation"),
    ("not-s3", {"model__uri": "http://models/tiny"}, "spec.model.uri"),
    ("no-samplers", {"samplers": []}, "spec.samplers"),
    ("a" * 41, {}, "at most 40 characters"),
]


@pytest.mark.parametrize(("name", "changes", "expected"), REFUSED, ids=[r[0] for r in REFUSED])
def test_the_api_server_refuses_with_the_field_named(
    lab: Lab, name: str, changes: dict[str, Any], expected: str
) -> None:
    assert expected in lab.refusal(job(name, **changes))


def test_the_example_is_accepted(lab: Lab) -> None:
    assert lab.refusal(job("taken")) == ""


def test_crds_are_small_and_have_their_subresources(lab: Lab) -> None:
    crds = {
        kind: lab.get("crd", f"{kind}.rl-operator.io")["spec"]["versions"][0]
        for kind in ("rljobs", "samplerpools")
    }
    assert set(crds["rljobs"]["subresources"]) == {"status"}
    assert set(crds["samplerpools"]["subresources"]) == {"status", "scale"}
    columns = [crd["name"] for crd in crds["rljobs"]["additionalPrinterColumns"]]
    assert columns[:7] == ["Phase", "Trainer", "Samplers", "Step", "Reward", "Policy", "Age"]
