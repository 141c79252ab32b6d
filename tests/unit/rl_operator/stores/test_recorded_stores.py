"""What stands in for the stores in the benchmarks takes the calls that the real ones take."""

from __future__ import annotations

import inspect

import pytest

from benchmarks.operator.lab import recorded
from rl_operator import wiring

STAND_INS = {
    "Readers": recorded.RecordedReaders,
    "RunProgressPoller": recorded.RecordedRunProgress,
    "Preflight": recorded.PassedPreflight,
}


@pytest.mark.parametrize(
    ("real", "method"),
    [
        (name, method)
        for name, stand_in in STAND_INS.items()
        for method in vars(stand_in)
        if not method.startswith("_")
    ],
)
def test_it_takes_what_the_real_one_takes(real: str, method: str) -> None:
    taken = inspect.signature(getattr(STAND_INS[real], method))
    wanted = inspect.signature(getattr(getattr(wiring, real), method))
    assert [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in taken.parameters.values()
    ] == [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in wanted.parameters.values()
    ]
