"""Whether whoever refuses a manifest does so in the documented form: field, value, remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from pydantic import ValidationError

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import API_VERSION, RLJobSpec, SamplerPoolSpec
from rl_operator.validation.pool_options import of_several
from rl_operator.validation.refusals import of_spec, of_template

PLURALS = {"RLJob": "rljobs", "SamplerPool": "samplerpools"}
REPRS = re.compile(r"\bInput should\b|<class |object at 0x|apply it anew|= [\"'][\[{]['\"]")
"""What only Python says."""


def faults(api: client.ApiClient, manifest: dict[str, Any]) -> list[str]:
    """What is wrong with the verdict on a manifest; nothing if it is accepted or well refused."""
    try:
        stored = client.CustomObjectsApi(api).create_namespaced_custom_object(
            *API_VERSION.split("/"),
            "default",
            PLURALS[manifest["kind"]],
            manifest,
            dry_run="All",
            field_validation="Strict",
        )
    except ApiException as error:
        return list(_of_api(error))
    return list(_of_operator(manifest["kind"], stored["spec"]))


def _of_api(error: ApiException) -> Iterator[str]:
    answer = json.loads(error.body)
    if error.status == 400:  # an unknown field, or a value of another type, by its path
        if "field" not in answer["message"] and "unmarshal" not in answer["message"]:
            yield f"400 without a field: {answer['message'][:300]}"
        return
    if error.status != 422:
        yield f"{error.status}: {answer['message'][:300]}"
        return
    for cause in answer["details"]["causes"]:
        # Kubernetes itself writes .spec.replicas, the field of the subresource scale.
        if not cause.get("field", "").lstrip(".").startswith(("spec", "metadata", "<nil>")):
            yield f"no field: {cause}"
        if not cause["message"] or REPRS.search(cause["message"]):
            yield f"not in form: {cause}"


def _of_operator(kind: str, spec: dict[str, Any]) -> Iterator[str]:
    try:
        refusals = list(_refusals(kind, spec))
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            yield f"the schema lacks a bound: {problem['loc']}: {problem['msg']}"
        return
    for refusal in refusals:
        parts = (refusal.field, refusal.message, refusal.remedy)
        if not refusal.field.startswith("spec.") or not all(parts) or REPRS.search(str(refusal)):
            yield f"not in form: {refusal}"


def _refusals(kind: str, spec: dict[str, Any]) -> Iterator[Refusal]:
    if kind == "RLJob":
        return iter(of_spec(RLJobSpec.model_validate(spec)))
    pool = SamplerPoolSpec.model_validate(spec)
    return chain(of_template("spec.template", pool.template), of_several("spec", pool))
