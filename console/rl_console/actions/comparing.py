"""In which options two jobs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_console.errors import UsageError
from rl_console.invocation import Invocation
from rl_console.manifests.checks import fill_defaults, schema_of
from rl_console.manifests.files import SUFFIXES, read
from rl_console.output import Column, Listing
from rl_console.plain_text import plain_line

Spec = Mapping[str, Any]
NAMES = {"samplers": "name", "train": "name", "validation": "name", "test": "name"}
"""Lists whose items are compared by a name, not by their place."""
IGNORED = ("suspend", "runId", "managedBy")


def specs_of(
    invocation: Invocation, first: str, second: str
) -> tuple[tuple[str, Spec], tuple[str, Spec]]:
    """Label and spec of each job, with defaults filled in; asks the cluster only for names."""
    return _spec(invocation, first), _spec(invocation, second)


def is_file(given: str) -> bool:
    """Whether a manifest's file is meant, and not a job of the cluster."""
    path = Path(given)
    return path.suffix in SUFFIXES or path.exists()


def _spec(invocation: Invocation, given: str) -> tuple[str, Spec]:
    if is_file(given):
        jobs = [each for each in read([Path(given)]) if each.manifest.get("kind") == "RLJob"]
        if len(jobs) != 1:
            raise UsageError(f"{given} holds {len(jobs)} RLJobs", remedy="Name a file with one")
        raw = dict(jobs[0].manifest)
    else:
        cluster = invocation.cluster()
        raw = cluster.raw_job(cluster.default_namespace, given)
    raw = json.loads(json.dumps(raw))
    raw.pop("status", None)
    fill_defaults(schema_of("RLJob"), raw)
    spec = raw.get("spec") or {}
    if not isinstance(spec, dict):
        raise UsageError(f"{given}: spec is no object", remedy="`kubectl rl validate` says more")
    return given, {key: value for key, value in spec.items() if key not in IGNORED}


def compare(first: tuple[str, Spec], second: tuple[str, Spec]) -> Listing:
    """The options that differ, with both values; –: not set."""
    before, after = dict(_leaves(first[1], "")), dict(_leaves(second[1], ""))
    fields = [*before, *(field for field in after if field not in before)]
    changed = [field for field in fields if before.get(field) != after.get(field)]
    return Listing(
        columns=(
            Column(heading="OPTION"),
            Column(heading=plain_line(first[0]), text=True),
            Column(heading=plain_line(second[0]), text=True),
        ),
        rows=[(field, _shown(before, field), _shown(after, field)) for field in changed],
        objects=[
            {
                "metadata": {"name": field},
                "first": before.get(field),
                "second": after.get(field),
            }
            for field in changed
        ],
        kind="option",
        empty="The jobs do not differ.",
    )


def _leaves(value: Any, at: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{at}.{name}" if at else name)
        return
    key = NAMES.get(at.rpartition(".")[2])
    if isinstance(value, list) and key and all(isinstance(each, dict) for each in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{at}[{item.get(key, index)}]")
        return
    yield at, value


def _shown(values: Mapping[str, Any], field: str) -> str:
    if field not in values:
        return "–"
    value = values[field]
    return value if isinstance(value, str) else json.dumps(value)
