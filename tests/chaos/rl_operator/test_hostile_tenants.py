"""A tenant attacks as ``benchmarks.operator.tenants`` does, and another tenant's job starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.operator import tenants
from benchmarks.operator.tenancy.cases import CASES
from benchmarks.operator.tenants import Lab

ATTACKS = [name for name in CASES if name != "nobody"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with tenants.running_lab(tmp_path_factory.mktemp("tenants")) as running:
        yield running


@pytest.mark.parametrize("name", ATTACKS)
def test_another_tenants_job_starts_and_the_operator_stays_small(lab: Lab, name: str) -> None:
    end = tenants.outlast(lab, name, CASES[name], quick=True)
    assert max(end.starts) <= tenants.START_SECONDS, end.row
    assert end.operator_mb <= tenants.OPERATOR_MB, end.row
