from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_contracts.errors import RefusedError
from tests.models.families import FAMILIES, trained

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "models.md"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_trained_or_refused_as_its_page_says(family: str, tmp_path: Path) -> None:
    row = re.search(rf"^\| `{family}` \| [^|]+ \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None, f"no row of {family}"
    if row[1] == "refused":
        with pytest.raises(RefusedError, match="ForCausalLM cannot be trained"):
            trained(family, tmp_path)
        return
    assert row[1] == "trained"
    result = trained(family, tmp_path)
    assert result.gap <= 1e-4
    assert result.changed
    assert result.reload_gap <= 1e-6
