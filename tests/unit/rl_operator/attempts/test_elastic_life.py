"""An elastic trainer, whatever happens: as large as there are nodes for, within its bounds."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_operator.kube.conditions import is_true
from tests.examples import examples
from tests.unit.rl_operator.jobs.test_life import EVENTS, FAULTS, RULES, Event, check_same_rest
from tests.unit.rl_operator.model_elastic import LEAST, MOST, ElasticLife
from tests.unit.rl_operator.model_life import Life


def nodes(count: int) -> Event:
    """So many nodes there are from now on: one that goes takes its pod along."""

    def change(life: Life) -> None:
        assert isinstance(life, ElasticLife)
        life.nodes = count
        if sizes(life)[1] > count:
            life.end_trainer(137, conditions=("DisruptionTarget",))

    return change


def be_patient(life: Life) -> None:
    """Longer than an attempt waits for nodes."""
    life.now += 1000.0
    life.progress_at = life.now


ALL = {
    **EVENTS,
    "longer than it waits for nodes": be_patient,
    **{f"{count} nodes": nodes(count) for count in range(MOST + 1)},
}
CLOCKS = ("the clock an hour back", "the clock an hour ahead")
STEADY = {name: fault for name, fault in FAULTS.items() if name not in CLOCKS}
"""How long a pod has waited for a node is told by the clock."""


def come_to_rest(life: ElasticLife) -> None:
    """Whoever waits, for a pause or for nodes, has waited."""
    for _ in range(MOST + 1):
        life.settle()
        be_patient(life)
    life.settle()


def sizes(life: Life) -> tuple[int, int]:
    """Pods of the attempt that is under way, and those of them that run."""
    pods = [pod for pod in life.pods.values() if pod.component == "trainer" and pod.live]
    return len(pods), sum(pod.ready for pod in pods)


@example(["settle", "0 nodes"])
@example(["settle", "suspend", "crash after three actions", "resume", "0 nodes"])
@example(["settle", "1 nodes", "trainer crashes", "settle", "3 nodes"])
@example(["0 nodes", "settle", "longer than it waits for nodes", "settle", "suspend"])
@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.sampled_from(sorted(ALL)), max_size=25))
def test_elastic_attempt_is_as_large_as_the_nodes_allow(history: list[str]) -> None:
    life = ElasticLife(backoffLimit=2, failurePolicy={"rules": RULES})
    for event in history:
        ALL[event](life)
        attempts = {pod.attempt for pod in life.pods.values() if pod.attempt and pod.live}
        assert len(attempts) <= 1 or life.overdue(), "two attempts at a time"
        assert all(LEAST <= attempt.replicas <= MOST for attempt in life.status.attempts)
    life.nodes = max(life.nodes, LEAST)
    come_to_rest(life)
    before = life.writes
    life.settle()
    assert life.writes == before, "a second look writes"
    assert life.begun == list(range(1, len(life.begun) + 1)), "an attempt was skipped or repeated"
    status = life.status
    over = is_true(status.conditions, "Complete") or is_true(status.conditions, "Failed")
    if over or life.suspend:
        assert sizes(life) == (0, 0)
    else:
        wanted, running = sizes(life)
        assert wanted == running == status.attempts[-1].replicas <= life.nodes
    assert status.failures <= 3


@settings(deadline=None, max_examples=examples(25))
@given(
    st.lists(st.sampled_from(sorted(ALL)), max_size=15),
    st.lists(st.sampled_from(sorted(STEADY)), max_size=15),
)
def test_faults_lead_to_the_same_rest(history: list[str], faults: list[str]) -> None:
    life = ElasticLife(backoffLimit=2, failurePolicy={"rules": RULES})
    if "others work" in faults:  # when they make a pod is told by the clock, too: before both rests
        history = [*history, "others work"]
    check_same_rest(
        life, history=[ALL[event] for event in history], faults=[STEADY[fault] for fault in faults]
    )
