"""`validate` without a cluster refuses what the API server refuses, for the same rule."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client, config

from rl_console.manifests.checks import problems
from tests.contract.rl_operator.api.bad_agents import REFUSED_AGENTS
from tests.contract.rl_operator.api.bad_algorithms import REFUSED_ALGORITHMS
from tests.contract.rl_operator.api.bad_jobs import REFUSED_JOBS
from tests.contract.rl_operator.api.bad_options import REFUSED_OPTIONS
from tests.contract.rl_operator.api.bad_pools import ACCEPTED_POOLS, REFUSED_POOLS
from tests.contract.rl_operator.api.bad_scheduling import REFUSED_SCHEDULING
from tests.kube.apiserver import ApiServer
from tests.samples.invalid_manifests import POOL, cases

Manifest = dict[str, Any]
PLURALS = {"RLJob": "rljobs", "SamplerPool": "samplerpools"}
BY_RULE: dict[str, tuple[Manifest, str]] = (
    REFUSED_JOBS
    | REFUSED_ALGORITHMS
    | REFUSED_AGENTS
    | REFUSED_OPTIONS
    | REFUSED_SCHEDULING
    | REFUSED_POOLS
)
OWN_WORDS = (
    ": write ",
    ", and must ",
    ", and may ",
    "must be of type",
    "is required",
    "is a second item",
)
"""Of messages about the schema; those about rules are the rules' own."""


@pytest.fixture(scope="module")
def answers(apiserver: ApiServer) -> dict[str, list[dict[str, str]]]:
    """What the API server says of each manifest, asked side by side."""
    configuration = client.Configuration()
    config.load_kube_config(str(apiserver.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connected, ThreadPoolExecutor(4) as threads:
        objects = client.CustomObjectsApi(connected)
        listed = threads.map(lambda each: causes(objects, each[0]), BY_RULE.values())
        return dict(zip(BY_RULE, listed, strict=True))


def causes(objects: client.CustomObjectsApi, manifest: Manifest) -> list[dict[str, str]]:
    """Why the API server refuses a manifest; empty if it does not."""
    body = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}
    try:
        objects.create_namespaced_custom_object(
            "rl-operator.io",
            "v1alpha1",
            "default",
            PLURALS[body["kind"]],
            body,
            dry_run="All",
            field_validation="Strict",
        )
    except client.ApiException as error:
        answer = json.loads(error.body)
        causes = (answer.get("details") or {}).get("causes") or [{"message": answer["message"]}]
        return [
            {**cause, "field": str(cause.get("field", "")).replace("<nil>", "")} for cause in causes
        ]
    return []


@pytest.mark.parametrize("name", BY_RULE)
def test_a_rule_is_broken_here_as_there(
    name: str, answers: dict[str, list[dict[str, str]]]
) -> None:
    there, here = answers[name], problems(BY_RULE[name][0])
    assert here
    for problem in sorted(here, key=lambda each: not each.message.startswith("is no field")):
        if problem.message.startswith("is no field"):
            assert f'unknown field "{problem.field}"' in there[0]["message"]
            return  # the API server reads no further
        messages = [cause["message"] for cause in there if cause["field"] == problem.field]
        assert messages, problem
        if not any(words in problem.message for words in OWN_WORDS):
            assert any(message.endswith(problem.message) for message in messages), problem


@pytest.mark.parametrize("name", ACCEPTED_POOLS)
def test_what_the_api_server_accepts_is_accepted(name: str) -> None:
    assert problems(ACCEPTED_POOLS[name]) == []


METADATA: dict[str, tuple[dict[str, Any], bool]] = {
    "a label without a value": ({"labels": {"a": "", "b": None}}, True),
    "a label with a prefix": ({"labels": {"a.b-c/D_e.f": "G_h.i"}}, True),
    "a label that ends with a dash": ({"labels": {"a": "b-"}}, False),
    "a long label": ({"labels": {"a" * 63: "b" * 63}}, True),
    "a label that is too long": ({"labels": {"a": "b" * 64}}, False),
    "a label with a blank": ({"labels": {"a b": "c"}}, False),
    "a label with two prefixes": ({"labels": {"a/b/c": "d"}}, False),
    "a label with an upper-case prefix": ({"labels": {"A/b": "c"}}, False),
    "a label that is a number": ({"labels": {"a": 7}}, False),
    "an annotation of any text": ({"annotations": {"a/B": " - \n"}}, True),
    "an annotation with a blank": ({"annotations": {"a b": "c"}}, False),
    "an annotation that is too long": ({"annotations": {"a": "b" * 262_144}}, False),
    "a long annotation": ({"annotations": {"a": "b" * 262_143}}, True),
    "a field that is none": ({"lables": {}}, False),
    "a field of the server": ({"generation": 1}, True),
    "a name with an underscore": ({"name": "a_b"}, False),
    "a name with a dot": ({"name": "a.b"}, True),
    "a name that is a number": ({"name": 7}, False),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_is_refused_here_as_there(name: str, apiserver: ApiServer) -> None:
    metadata, valid = METADATA[name]
    manifest = POOL | {"metadata": POOL["metadata"] | metadata}
    configuration = client.Configuration()
    config.load_kube_config(str(apiserver.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connected:
        there = causes(client.CustomObjectsApi(connected), manifest)
    assert (not there, not problems(manifest)) == (valid, valid), there


def test_every_violation_of_the_schema_is_found_at_its_field() -> None:
    """Those that the API server names: `test_invalid.py` compares them with its answers."""
    missed: Counter[str] = Counter()
    for case in cases():
        fields = [problem.field for problem in problems(case.manifest)]
        if not any(case.field in (field, f"spec.{field}") for field in fields):
            missed[f"{case} -> {fields[:2]}"] += 1
    assert not missed
