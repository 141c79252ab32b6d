"""Three thousand mutated examples: each is accepted, or refused in the documented form."""

from __future__ import annotations

import pytest
from kubernetes import client

from tests.contract.rl_operator.api.refusal_form import faults
from tests.samples.mutations import mutations

SEEDS, COUNT = range(6), 500


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_examples_are_refused_by_field_value_and_remedy(
    with_trainer_kind: object, api: client.ApiClient, seed: int
) -> None:
    checked = [(manifest, faults(api, manifest)) for manifest in mutations(seed, COUNT)]
    assert [fault for _, several in checked for fault in several] == []
