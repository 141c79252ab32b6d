"""Manifests whose verdict was recorded: what was accepted still is, and what was refused too.

A refusal may move from the operator to the API server, where the user meets it earlier. What is
refused now and was accepted then stands in the record under ``tightened``, what is honoured now and
was refused then under ``loosened``, each with the reason, and fields that no longer exist under
``removed``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import API_VERSION, RLJobSpec, SamplerPoolSpec
from rl_operator.validation.pool_options import of_several
from rl_operator.validation.refusals import of_spec, of_template
from tests.contract.rl_operator.world import a_namespace
from tests.kube.apiserver import ApiServer

RECORD: dict[str, Any] = json.loads(Path(__file__).with_name("recorded_manifests.json").read_text())
PLURALS = {"RLJob": "rljobs", "SamplerPool": "samplerpools"}
ALLOWED = {"accepted": {"accepted"}, "schema": {"schema"}, "operator": {"operator", "schema"}}
"""Verdicts of today by the recorded one."""
REFUSED = {"schema", "operator"}


def manifest_of(entry: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A recorded manifest in full."""
    names = entry.get("base", [])
    base = {name: RECORD["base"][name] for name in (RECORD["base"] if names is True else names)}
    return {
        "apiVersion": API_VERSION,
        "kind": entry.get("kind", "RLJob"),
        "metadata": {"name": entry.get("name", "job"), "namespace": namespace},
        "spec": base | entry["spec"],
    }


def verdict(api: client.ApiClient, manifest: dict[str, Any]) -> str:
    """Who refuses a manifest: ``schema`` (the API server) or ``operator``; else ``accepted``."""
    kind = manifest["kind"]
    try:
        stored = client.CustomObjectsApi(api).create_namespaced_custom_object(
            *API_VERSION.split("/"),
            manifest["metadata"]["namespace"],
            PLURALS[kind],
            manifest,
            dry_run="All",
            field_validation="Strict",
        )
    except ApiException as error:
        if error.status not in (400, 422):
            raise
        return "schema"
    try:
        refused = next(refusals(kind, stored["spec"]), None)
    except ValidationError:
        return "operator"
    return "accepted" if refused is None else "operator"


def refusals(kind: str, spec: dict[str, Any]) -> Iterator[Refusal]:
    """What the operator refuses of a stored object."""
    if kind == "RLJob":
        return iter(of_spec(RLJobSpec.model_validate(spec)))
    pool = SamplerPoolSpec.model_validate(spec)
    if pool.model is None:
        return iter(())
    return chain(of_template("spec.template", pool.template), of_several("spec", pool))


def test_recorded_manifests_have_their_recorded_verdicts(
    with_trainer_kind: ApiServer, api: client.ApiClient
) -> None:
    namespace, changed = a_namespace(with_trainer_kind), []
    for entry in RECORD["manifests"]:
        now = verdict(api, manifest_of(entry, namespace))
        allowed = REFUSED if entry["id"] in RECORD["tightened"] else ALLOWED[entry["verdict"]]
        if entry["id"] in RECORD["loosened"]:
            allowed = {"accepted"}
        if now not in allowed:
            changed.append(f"{entry['id']}: {entry['verdict']} before, {now} now")
    assert changed == []


@pytest.mark.parametrize("verdict", ["accepted", "schema", "operator"])
def test_the_record_holds_many_manifests_of_each_verdict(verdict: str) -> None:
    assert len([entry for entry in RECORD["manifests"] if entry["verdict"] == verdict]) >= 100


def test_only_accepted_manifests_can_be_tightened_and_only_refused_ones_loosened() -> None:
    accepted = {entry["id"] for entry in RECORD["manifests"] if entry["verdict"] == "accepted"}
    assert set(RECORD["tightened"]) <= accepted
    refused = {entry["id"] for entry in RECORD["manifests"]} - accepted
    assert set(RECORD["loosened"]) <= refused
