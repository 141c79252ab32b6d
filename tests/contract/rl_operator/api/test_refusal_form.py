"""Mutated examples are accepted, or refused in the documented form; 3,000 more in tests/chaos."""

from __future__ import annotations

from kubernetes import client

from tests.contract.rl_operator.api.refusal_form import faults
from tests.samples.mutations import mutations

SEED, COUNT = 26, 200


def test_mutated_examples_are_refused_by_field_value_and_remedy(
    with_trainer_kind: object, api: client.ApiClient
) -> None:
    checked = [(manifest, faults(api, manifest)) for manifest in mutations(SEED, COUNT)]
    assert [fault for _, several in checked for fault in several] == []
