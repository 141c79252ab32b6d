import pytest

from rl_console.following.failure import choose_log, describe
from rl_console.following.follow import Ending
from rl_console.pods import PodView
from tests.unit.rl_console.builders import condition, failed, pod, running, snapshot

OPERATOR = [pod("operator-1", running("operator"))]
GOOD_SAMPLER = pod("sampler-1", running("engine"), running("agent"), role="sampler")
GOOD_TRAINER = pod("job-1", running("pytorch"), role="trainer", attempt=1)
BAD_TRAINER = pod("job-1", failed("pytorch"), role="trainer", attempt=1)
BAD_ENGINE = pod("sampler-2", failed("engine", before=True), running("agent"), role="sampler")
SLOW_SAMPLER = pod("sampler-3", running("engine", ready=False), role="sampler")


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([GOOD_SAMPLER, BAD_ENGINE, BAD_TRAINER], ("job-1", "pytorch", False)),
        ([GOOD_TRAINER, GOOD_SAMPLER, BAD_ENGINE], ("sampler-2", "engine", True)),
        ([GOOD_TRAINER, SLOW_SAMPLER], ("sampler-3", "engine", False)),
        ([GOOD_TRAINER, GOOD_SAMPLER], ("job-1", "pytorch", False)),
        ([GOOD_SAMPLER], ("operator-1", "operator", False)),
        ([], ("operator-1", "operator", False)),
    ],
)
def test_the_log_of_the_most_likely_cause_is_chosen(
    pods: list[PodView], chosen: tuple[str, str, bool]
) -> None:
    wanted = choose_log(pods, OPERATOR)
    assert wanted is not None
    assert (wanted.pod.name, wanted.container, wanted.previous) == chosen


def test_the_newest_attempt_comes_first() -> None:
    pods = [pod(f"job-{n}", failed("pytorch"), role="trainer", attempt=n) for n in (1, 3, 2)]
    wanted = choose_log(pods, OPERATOR)
    assert wanted is not None
    assert wanted.pod.name == "job-3"


def test_without_any_container_there_is_no_log() -> None:
    assert choose_log([pod("job-1", role="trainer")], []) is None


def test_a_failure_names_condition_remedy_and_last_attempt() -> None:
    last = {
        "attempt": 2,
        "reason": "ExitedWithError",
        "message": "Boom.",
        "exitCode": 1,
        "time": "2026-11-21T00:00:00Z",
    }
    failed_snapshot = snapshot(condition("Failed", reason="BackoffLimitExceeded"), lastFailure=last)
    failed_condition = failed_snapshot.job.status.conditions[0]
    ending = Ending(kind="Failed", snapshot=failed_snapshot, seconds=5, condition=failed_condition)
    text, remedy = describe(ending, job="sums -n lab")
    assert text.startswith("Failed=True, BackoffLimitExceeded: Failed it is.")
    assert "2 (ExitedWithError, exit code 1): Boom." in text
    assert remedy.startswith("Fix the cause")


@pytest.mark.parametrize(
    ("phase", "beginning"),
    [("Failed", "Fix the cause that"), ("Stopped", "Nothing is broken: spec.stop ended the run.")],
)
def test_the_remedy_of_a_job_that_ended_keeps_its_training(phase: str, beginning: str) -> None:
    ended = snapshot(condition("Failed", reason=phase), phase=phase)
    why = ended.job.status.conditions[0]
    _, remedy = describe(
        Ending(kind="Failed", snapshot=ended, seconds=5, condition=why), job="sums -n lab"
    )
    assert remedy.startswith(beginning)
    assert "`kubectl rl retry sums -n lab`" in remedy
    assert "delete" not in remedy
