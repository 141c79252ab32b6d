from __future__ import annotations

import re

from rl_contracts.capacity.mesh import TRIED
from rl_contracts.spec.mesh_features import FEATURES, SHOWN_AXES
from tests.unit.docs.pages import ROOT


def test_the_table_of_meshes_and_features_is_that_of_the_code() -> None:
    page = (ROOT / "docs/guides/parallelism.md").read_text()
    table = page.partition("## Meshes and features")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    header, shown = rows[0], rows[1:]
    assert [axis.strip("`| ") for axis in header if axis.strip("| ")] == list(SHOWN_AXES)
    expected = [
        [feature.name, *("–" if axis in feature.refused else "✓" for axis in SHOWN_AXES)]
        for feature in FEATURES
    ]
    assert shown == expected


def test_the_page_names_the_families_that_were_tried() -> None:
    page = (ROOT / "docs/guides/parallelism.md").read_text()
    rule = page.partition("gradients included: for `tp` ")[2].partition(".\n")[0]
    of_tp, _, others = rule.partition("; for `cp` these and ")
    also_cp, _, of_ep = others.partition("; for `ep` ")
    names = re.compile(r"`(\w+)`").findall
    assert names(of_tp) == list(TRIED["tp"])
    assert sorted(names(of_tp) + names(also_cp)) == list(TRIED["cp"])
    assert names(of_ep) == list(TRIED["ep"])
