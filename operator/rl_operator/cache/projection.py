"""Projects watched objects onto the fields that the operator reads, while parsing their JSON.

Half of an object is ``managedFields``, and of a pod only metadata and status are read. Fields that
are left out here never become Python objects: creating those takes longer than everything else that
is done with a list.
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
    kinds.SANDBOX_WARM_POOL,
    kinds.SANDBOX_CLAIM,
)
"""The watched kinds."""
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
    """The fields of an object that are read, in the same order from lists and from events.

    Items of lists lack their kind, so it is added.
    """
    meta = raw["metadata"]
    parts = {part: raw[part] for part in _parts(kind) if part in raw}
    metadata = {name: meta[name] for name in METADATA if name in meta}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **parts}


def list_reader(path: str) -> Read:
    """The parser of answers to GETs of a path; of a list of a watched kind it projects the items.

    The parser raises:
        ValueError: the text is not JSON, or does not have that shape.
    """
    return _LISTS.get(_last(path), parsed)


def event_reader(path: str) -> Read:
    """The parser of a watch's lines: the event's type and its projected object."""
    return _EVENTS.get(_last(path), parsed)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _parts(kind: Kind) -> tuple[str, ...]:
    return ("status",) if kind == kinds.POD else ("spec", "status")


def _object_with(**fields: CoreSchema) -> CoreSchema:
    """A mapping whose other fields are ignored; each of these may be missing."""
    optional = {name: typed_dict_field(field, required=False) for name, field in fields.items()}
    return typed_dict_schema(optional, extra_behavior="ignore")


def _object(kind: Kind) -> CoreSchema:
    whole = {name: any_schema() for name in ("apiVersion", "kind", *_parts(kind))}
    return _object_with(metadata=_object_with(**{name: any_schema() for name in METADATA}), **whole)


def _list(kind: Kind) -> CoreSchema:
    whole = {name: any_schema() for name in ("apiVersion", "kind", "metadata")}
    return _object_with(items=nullable_schema(list_schema(_object(kind))), **whole)


_LISTS = {kind.plural: any_depth(SchemaValidator(_list(kind)).validate_json) for kind in KINDS}
_EVENTS = {
    kind.plural: any_depth(
        SchemaValidator(_object_with(type=any_schema(), object=_object(kind))).validate_json
    )
    for kind in KINDS
}
