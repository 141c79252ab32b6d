"""Checks manifests as the API server does: the models first, then the rules of the CRDs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from rl_console.manifests import cel, headings
from rl_console.manifests.structure import Problem, differences, shown, state_of
from rl_contracts.spec import scorer_kinds
from rl_contracts.spec.resources import RLJob, RLJobSpec, SamplerPool
from rl_contracts.spec.schema import crd

MODELS = {"RLJob": RLJob, "SamplerPool": SamplerPool}


def problems(manifest: Mapping[str, Any]) -> list[Problem]:
    """Everything that is wrong with a manifest of an RLJob or a SamplerPool; empty: nothing.

    Rules of a manifest whose fields are wrong are not evaluated, as the API server does not.
    """
    heading, metadata = list(headings.of_kind(manifest)), list(headings.of_metadata(manifest))
    if heading:
        return heading + metadata
    kind = manifest["kind"]
    if fields := metadata + list(_of_fields(kind, manifest)):
        return fields
    schema = schema_of(kind)
    whole = copy.deepcopy(dict(manifest))
    whole.pop("status", None)
    fill_defaults(schema, whole)
    broken = [Problem(each.field, each.message) for each in cel.violations(schema, whole)]
    return broken or list(_of_scorers(kind, manifest))


def _of_scorers(kind: str, manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """Scorers that the operator refuses: a rule of the API server cannot know them."""
    if kind == "RLJob":
        for refusal in scorer_kinds.refusals(RLJobSpec.model_validate(manifest["spec"])):
            value = shown(refusal.value)
            yield Problem(refusal.field, f"is {value}. {refusal.message} {refusal.remedy}")


def _of_fields(kind: str, manifest: Mapping[str, Any]) -> Iterator[Problem]:
    schema = schema_of(kind)["properties"]["spec"]
    unknown = [
        *headings.of_fields(manifest, schema),
        *differences(schema, manifest.get("spec"), "spec"),
    ]
    yield from unknown
    if unknown:
        return
    try:
        MODELS[kind].model_validate({"spec": manifest["spec"]})
    except ValidationError as error:
        for each in error.errors(include_url=False):
            if each["type"] != "value_error":  # a CEL rule that code relies on, too
                yield Problem(path_of(each["loc"]), f"{each['msg']}, and {state_of(each['input'])}")


def path_of(place: tuple[int | str, ...]) -> str:
    """Path of a field, e.g. ``spec.data.train[0].uri``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


@functools.cache
def schema_of(kind: str) -> Mapping[str, Any]:
    """The structural schema of a kind."""
    written = crd.rljob() if kind == "RLJob" else crd.samplerpool()
    (version,) = written["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def fill_defaults(schema: Mapping[str, Any], value: Any) -> None:
    """Fill in defaults in place, as the API server does: outer ones first."""
    if isinstance(value, list):
        for item in value:
            fill_defaults(schema.get("items", {}), item)
    if not isinstance(value, dict):
        return
    for name, field in schema.get("properties", {}).items():
        if name not in value and "default" in field:
            value[name] = copy.deepcopy(field["default"])
        if name in value:
            fill_defaults(field, value[name])
