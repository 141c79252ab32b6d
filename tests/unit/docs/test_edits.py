"""The table of edits has every section of a job, field by field where these differ, once."""

from __future__ import annotations

import re
from collections import Counter

from pydantic import BaseModel

from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.resources import FIXED_ONCE_STARTED, FIXED_UNLESS_SUSPENDED, RLJobSpec
from rl_contracts.spec.rules.jobs import ONLY_RAISED
from rl_contracts.spec.workers import SamplerTemplate
from tests.chaos.operator_cluster.edits import FOR_EVER, SECTIONS
from tests.unit.docs.pages import QUOTED, ROOT

PAGE = (ROOT / "docs" / "guides" / "operations.md").read_text()


def rows() -> list[tuple[list[str], str]]:
    """Fields and effect of each row."""
    (table,) = re.findall(r"^## Edits of a running job\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    cells = [line.strip("|\n ").split(" | ", 1) for line in table.splitlines() if " | " in line]
    return [(QUOTED.findall(fields), effect) for fields, effect in cells[1:] if "`" in fields]


def of(words: str) -> set[str]:
    """Fields of the only row whose effect has these words."""
    (fields,) = [fields for fields, effect in rows() if words in effect]
    return set(fields)


def names(model: type[BaseModel], prefix: str = "") -> set[str]:
    return {f"{prefix}{field.alias or name}" for name, field in model.model_fields.items()}


def test_each_field_is_in_one_row() -> None:
    counted = Counter(field for fields, _ in rows() for field in fields)
    assert max(counted.values()) == 1
    raised = {f"{section}.{field}" for section, fields in ONLY_RAISED.items() for field in fields}
    template, lifecycle = names(SamplerTemplate, "template."), names(Lifecycle, "lifecycle.")
    assert set(counted) == names(RLJobSpec) - {"lifecycle"} | raised | template | lifecycle


def test_what_the_api_server_refuses_is_what_the_table_says() -> None:
    assert of("make a new job") == set(FIXED_ONCE_STARTED)
    assert of("made while suspended") == set(FIXED_UNLESS_SUSPENDED)
    assert of("also before the start") == set(FOR_EVER)
    assert of("phase is `Suspended`") == {
        f"{section}.{field}" for section, fields in ONLY_RAISED.items() for field in fields
    }
    refused = {*FIXED_ONCE_STARTED, *FIXED_UNLESS_SUSPENDED, *FOR_EVER}
    assert names(RLJobSpec) - refused == set(SECTIONS)
