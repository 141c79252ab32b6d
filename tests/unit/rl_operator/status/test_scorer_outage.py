"""What samplers cannot do without and do not reach, as a condition of the job."""

from __future__ import annotations

import pytest

from rl_operator.kube.conditions import find
from rl_operator.state.progress import REACHED, Reading
from rl_operator.status.job_conditions import compute
from tests.unit.rl_operator.builders import a_reading
from tests.unit.rl_operator.status_inputs import DOWN, RUN, SAMPLER, UNJUDGED, a_status_input


def test_a_judge_s_outage_is_a_condition_that_names_it_and_goes() -> None:
    well = compute(a_status_input())
    assert find(well.conditions, "ScorerUnavailable") is None
    outage = compute(a_status_input(well, a_reading(RUN, samplers=(SAMPLER, UNJUDGED))))
    condition = find(outage.conditions, "ScorerUnavailable")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "NoAnswer")
    assert "Scorer Judge: m at http://j cannot be reached. Some samplers" in condition.message
    assert outage.phase == "Running"
    for silent in (Reading(store=DOWN, bucket=REACHED), a_reading(RUN)):
        assert find(compute(a_status_input(outage, silent)).conditions, condition.type) == condition
    condition = find(compute(a_status_input(outage)).conditions, "ScorerUnavailable")
    assert condition is not None
    assert condition.status == "False"


@pytest.mark.parametrize(
    "name",
    ["MCP server calculator", "simulated user", "browse model", "search service", "environment"],
)
def test_outage_of_other_services_is_named_without_scorer(name: str) -> None:
    sampler = SAMPLER.model_copy(update={"unavailable": {name: "http://c does not answer"}})
    outage = compute(a_status_input(reading=a_reading(RUN, samplers=(sampler,))))
    condition = find(outage.conditions, "ScorerUnavailable")
    assert condition is not None
    assert condition.message.startswith(
        f"The {name}: http://c does not answer. Samplers claim nothing"
    )
