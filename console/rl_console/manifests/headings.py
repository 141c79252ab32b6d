"""Checks what every object of Kubernetes has: kind, version, metadata, and no other fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rl_console.manifests.structure import Problem, no_field, shown, state_of
from rl_contracts.spec.resources import API_VERSION, GROUP

KINDS = ("RLJob", "SamplerPool")
FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
OF_METADATA = ("annotations", "finalizers", "labels", "name", "namespace", "ownerReferences")
BY_SERVER = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""Fields of metadata that nobody writes, but that objects read from a cluster have."""
LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(\.{LABEL})*\Z")
NAMESPACE = re.compile(rf"{LABEL}\Z")
WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")
MOST_ANNOTATIONS = 256 * 1024
"""Bytes of all keys and values together."""
A_DOMAIN = (
    "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, at "
    "most 253 characters"
)
A_NAMESPACE = (
    "lower-case letters, digits and '-', beginning and ending with a letter or digit, at most 63 "
    "characters"
)
A_WORD = (
    "letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, at most 63 "
    "characters"
)


def kind_of(manifest: Mapping[str, Any]) -> str:
    """Which of our kinds a manifest means, also where it is written like ``rljobs``."""
    word = str(manifest.get("kind")).casefold().removesuffix("s")
    return next((kind for kind in KINDS if kind.casefold() == word), "")


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is meant for us, by its kind or by the group of its version."""
    group = str(manifest.get("apiVersion")).partition("/")[0]
    return bool(kind_of(manifest)) or group == GROUP


def of_kind(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with kind and apiVersion; without them nothing else can be checked."""
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if kind not in KINDS:
        wanted = kind_of(manifest) or " or ".join(KINDS)
        state = "is missing" if kind is None else state_of(kind)
        yield Problem("kind", f"{state}: write {wanted}")
    if version != API_VERSION:
        state = "is missing" if version is None else state_of(version)
        yield Problem("apiVersion", f"{state}: write {API_VERSION}")


def of_fields(manifest: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Fields beside spec and metadata that no object has.

    Args:
        manifest: of the kind.
        spec: schema of the kind's spec.
    """
    for name in manifest:
        if name in FIELDS:
            continue
        if name in spec["properties"]:
            yield Problem(name, "is no field here: it belongs under spec")
        else:
            yield no_field(name, FIELDS)


def of_metadata(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    """What the API server refuses in the metadata; a rule of RLJob says more about its name."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        yield Problem("metadata.name", "is missing")
        return
    for each in metadata:
        if each not in (*OF_METADATA, *BY_SERVER):
            yield no_field(f"metadata.{each}", OF_METADATA)
    named = DOMAIN if manifest.get("kind") == "SamplerPool" else None
    yield from _of_text("metadata.name", metadata["name"], named, A_DOMAIN)
    if metadata.get("namespace") is not None:
        yield from _of_text("metadata.namespace", metadata["namespace"], NAMESPACE, A_NAMESPACE)
    yield from _of_map("metadata.labels", metadata.get("labels"), labels=True)
    yield from _of_map("metadata.annotations", metadata.get("annotations"), labels=False)


def _of_text(
    field: str, value: Any, pattern: re.Pattern[str] | None, form: str
) -> Iterator[Problem]:
    if not isinstance(value, str):
        yield Problem(field, f"must be of type string, and {state_of(value)}: put it in quotes")
    elif pattern is not None and not pattern.match(value):
        yield Problem(field, f"{state_of(value)}, and must be {form}")


def _of_map(field: str, values: Any, *, labels: bool) -> Iterator[Problem]:
    if values is None:
        return
    if not isinstance(values, Mapping):
        yield Problem(field, f"must be of type object, and {state_of(values)}")
        return
    for key, value in values.items():
        yield from _of_key(field, key)
        if value is not None and value != "":
            yield from _of_text(f"{field}.{key}", value, WORD if labels else None, A_WORD)
    size = sum(len(f"{key}{value}".encode()) for key, value in values.items())
    if not labels and size > MOST_ANNOTATIONS:
        yield Problem(field, f"has {size} bytes, and may have at most {MOST_ANNOTATIONS}")


def _of_key(field: str, key: str) -> Iterator[Problem]:
    prefix, slash, name = key.rpartition("/")
    if not WORD.match(name):
        yield Problem(f"{field}.{key}", f"the name {shown(name)} must be {A_WORD}")
    if slash and not DOMAIN.match(prefix):
        yield Problem(f"{field}.{key}", f"{shown(prefix)} before the slash must be {A_DOMAIN}")
