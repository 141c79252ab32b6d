"""Seeded mutations of the example manifests: what users mistype, and what they should not write."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from rl_contracts.spec.schema import crd
from tests.samples.manifests import documents
from tests.servers import ROOT

Manifest = dict[str, Any]
OURS = ("RLJob", "SamplerPool")
VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 5, 1.5, 0.0, 1e-9, 10**6, 2**31, 2**63, 1e300),
    *(
        "",
        " ",
        "a",
        "A",
        "x y",
        "None",
        "true",
        "25%",
        "s3://b/x",
        "hf://a/b",
        "../x",
        "é",
        "😀",
        "'",
    ),
    *(True, False, None, [], {}, ["a"], {"a": "b"}, [{}], [{"name": "a"}], "a" * 300),
)


def examples() -> list[Manifest]:
    """All RLJobs and SamplerPools of the examples."""
    files = sorted((ROOT / "examples").glob("*.yaml"))
    loaded = (item for file in files for item in documents(file.read_text()))
    return [item for item in loaded if item["kind"] in OURS]


def mutations(seed: int, count: int) -> Iterator[Manifest]:
    """Manifests with one to three changed, added, removed or misspelt fields each."""
    chance, bases = random.Random(seed), examples()
    schemas = {
        written["spec"]["names"]["kind"]: written["spec"]["versions"][0]["schema"][
            "openAPIV3Schema"
        ]["properties"]["spec"]
        for written in (crd.rljob(), crd.samplerpool())
    }
    for number in range(count):
        manifest = copy.deepcopy(chance.choice(bases))
        manifest["metadata"] = {"name": f"mutated-{number}"}
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            _mutate(manifest["spec"], schemas[manifest["kind"]], chance)
        yield manifest


def _mutate(node: Any, schema: dict[str, Any], chance: random.Random) -> None:
    """Walk down to a random field and change it."""
    while True:
        if isinstance(node, list):
            if not node or "items" not in schema:
                return
            index = chance.randrange(len(node))
            if not isinstance(node[index], dict):
                node[index] = chance.choice(VALUES)
                return
            node, schema = node[index], schema["items"]
            continue
        known = schema.get("properties", {})
        if not known:
            node["mistyped"] = chance.choice(VALUES)
            return
        name = chance.choice(sorted(known))
        below = node.get(name)
        if isinstance(below, (dict, list)) and below and chance.random() < 0.8:
            node, schema = below, known[name]
            continue
        if below is None and known[name].get("properties") and chance.random() < 0.7:
            node[name] = {}
            node, schema = node[name], known[name]
            continue
        _change(node, name, known[name], chance)
        return


def _change(node: dict[str, Any], name: str, schema: dict[str, Any], chance: random.Random) -> None:
    act = chance.random()
    if act < 0.08:
        node.pop(name, None)
    elif act < 0.14:
        node[f"{name}x"] = node.pop(name, 1)
    elif act < 0.45 and "enum" in schema:
        node[name] = chance.choice(schema["enum"])
    elif act < 0.6 and ("minimum" in schema or "maximum" in schema):
        bound = schema.get(chance.choice(("minimum", "maximum")), 0)
        node[name] = bound + chance.choice((-1, 0, 1))
    else:
        node[name] = chance.choice(VALUES)
