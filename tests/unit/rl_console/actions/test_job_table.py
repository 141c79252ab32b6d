from __future__ import annotations

import pytest

from rl_console.actions.job_table import phase_of
from rl_console.errors import UsageError


@pytest.mark.parametrize(
    ("written", "phase"), [("", ""), ("Stalled", "Stalled"), ("stalled", "Stalled")]
)
def test_a_phase_is_known_in_capitals_or_not(written: str, phase: str) -> None:
    assert phase_of(written) == phase


def test_a_phase_that_no_job_can_have_is_refused() -> None:
    """An empty list would be taken for the answer."""
    with pytest.raises(UsageError, match=r"--phase stuck: there is no such phase\. Use Pending,"):
        phase_of("stuck")
