"""Of watched objects what the operator reads, and no more, out of the JSON that tells of them.

Half of an object is who manages which of its fields, and of a pod nothing but metadata and status
is read. What is left out here is never made into Python's objects, which takes longer than all else
that is done with a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core.core_schema import (
    any_schema,
    list_schema,
    nullable_schema,
    typed_dict_field,
    typed_dict_schema,
)

from rl_operator.kube import kinds
from rl_operator.kube.kinds import Kind
from rl_operator.kube.nesting import any_depth
from rl_operator.kube.transport import parsed

KINDS = (
    kinds.RLJOB,
    kinds.SAMPLER_POOL,
    kinds.PYTORCH_JOB,
    kinds.DEPLOYMENT,
    kinds.POD,
    kinds.WORKLOAD,
)
"""Those that are watched."""
BY_NAME = {kind.name: kind for kind in KINDS}
METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
)
Read = Callable[[bytes], Any]


def excerpt(kind: Kind, raw: Mapping[str, Any]) -> dict[str, Any]:
    """What is read of an object, in one order whoever tells of it: lists name no kind of items."""
    meta = raw["metadata"]
    parts = {part: raw[part] for part in _parts(kind) if part in raw}
    metadata = {one: meta[one] for one in METADATA if one in meta}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}


def list_reader(path: str) -> Read:
    """Reads answers to GETs of a path: of lists of what is watched, what is read of each object.

    Raises, where it is called:
        ValueError: the text is no JSON, or not of that shape.
    """
    return _LISTS.get(_last(path), parsed)


def event_reader(path: str) -> Read:
    """Reads lines of a watch of a path: type and object, and of that what is read of it."""
    return _EVENTS.get(_last(path), parsed)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _parts(kind: Kind) -> tuple[str, ...]:
    return ("status",) if kind == kinds.POD else ("spec", "status")


def _some(**fields: CoreSchema) -> CoreSchema:
    """A mapping of which these are read, where they are there."""
    optional = {key: typed_dict_field(one, required=False) for key, one in fields.items()}
    return typed_dict_schema(optional, extra_behavior="ignore")


def _object(kind: Kind) -> CoreSchema:
    whole = {one: any_schema() for one in ("apiVersion", "kind", *_parts(kind))}
    return _some(metadata=_some(**{one: any_schema() for one in METADATA}), **whole)


def _list(kind: Kind) -> CoreSchema:
    whole = {one: any_schema() for one in ("apiVersion", "kind", "metadata")}
    return _some(items=nullable_schema(list_schema(_object(kind))), **whole)


_LISTS = {one.plural: any_depth(SchemaValidator(_list(one)).validate_json) for one in KINDS}
_EVENTS = {
    one.plural: any_depth(
        SchemaValidator(_some(type=any_schema(), object=_object(one))).validate_json
    )
    for one in KINDS
}
