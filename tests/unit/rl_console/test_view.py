from typing import Any

import pytest

from rl_console.view import doing, duration, fields, line
from tests.unit.rl_console.builders import condition, snapshot

RUNNING: dict[str, Any] = {
    "phase": "Running",
    "progress": {
        "step": 12,
        "steps": 60,
        "reward": 0.41,
        "phase": "training step 13",
        "backlog": 24,
        "tokensPerSecond": 1830.4,
        "trainerWaitShare": 0.123,
        "secondsLeft": 90,
    },
    "weights": {"version": 13, "lag": 1},
    "samplers": {"desired": 2, "ready": 2, "serving": 1},
}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 m 00 s"), (90, "1 m 30 s"), (3661, "1 h 01 m")],
)
def test_durations_are_shown_in_seconds_minutes_and_hours(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_line_shows_every_field_of_progress() -> None:
    assert line(snapshot(**RUNNING)) == (
        "Running | step 12/60 | reward 0.410 | policy 13 lag 1 | samplers 1/2/2 | backlog 24 | "
        "1,830 tokens/s | waits 12% | left 1 m 30 s | training step 13"
    )


def test_restarts_are_shown_only_when_not_zero() -> None:
    restarted = {**RUNNING, "trainer": {"restarts": 1}}
    assert "restarts 1+0" in line(snapshot(**restarted))


def test_unknown_fields_of_a_new_job_are_dashes() -> None:
    shown = dict(fields(snapshot()))
    assert shown["reward"] == "–"
    assert shown["time left"] == "–"
    assert shown["step"] == "0/0"


def test_unknown_numbers_during_an_outage_are_dashes() -> None:
    unknown = {"backlog": None, "tokensPerSecond": None, "secondsLeft": None, "phase": ""}
    away = condition("Ready", status="False", reason="StateStoreUnreachable")
    shown = snapshot(
        away,
        **{**RUNNING, "progress": {**RUNNING["progress"], **unknown}, "samplers": {"ready": 2}},
    )
    assert line(shown) == (
        "Running | step 12/60 | reward 0.410 | policy 13 lag 1 | samplers –/2/0 | backlog – | "
        "– tokens/s | waits 12% | StateStoreUnreachable: Ready it is."
    )
    texts = dict(fields(shown))
    assert [texts[label] for label in ("backlog", "tokens/s", "time left")] == ["–", "–", "–"]


def test_without_a_trainer_the_reason_for_not_being_ready_is_shown() -> None:
    waiting = snapshot(condition("Ready", status="False", reason="TrainerStarting"))
    assert doing(waiting.job.status) == "TrainerStarting: Ready it is."
    assert doing(snapshot().job.status) == "not seen by the operator yet"
