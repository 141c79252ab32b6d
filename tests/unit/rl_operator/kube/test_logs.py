"""Lines are JSON and say what they are about, whichever thread writes them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from rl_operator.kube import logs, metrics
from rl_operator.kube.api_errors import ApiConflictError, ApiMissingError, ApiUnavailableError
from rl_operator.kube.kinds import Key
from rl_operator.process.work_queue import WorkQueue
from rl_operator.process.worker import Reconcile, work

log = logging.getLogger("rl_operator.test")
KEY = Key("RLJob", "ns", "job")


@pytest.fixture
def lines() -> Iterator[list[dict[str, object]]]:
    """What is logged while the test runs."""
    lines: list[dict[str, object]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(logs.JsonFormatter().format(record)))

    handler, logger = Handler(), logging.getLogger("rl_operator")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def test_log_context_ends_with_its_block(lines: list[dict[str, object]]) -> None:
    with logs.about({"object": "o"}):
        logs.note(job="ns/job", attempt=2)
        log.info("in")
    log.info("out")
    logs.note(job="nobody's")
    assert {key: lines[0][key] for key in ("object", "job", "attempt")} == {
        "object": "o",
        "job": "ns/job",
        "attempt": 2,
    }
    assert "job" not in lines[1]


def test_no_line_shows_a_secret(lines: list[dict[str, object]]) -> None:
    secret = "s3cr3tV4lue-xyz"
    uri = f"mongodb://user:{secret}@store/"
    try:
        raise ConnectionError(f"cannot reach {uri}")
    except ConnectionError:
        log.exception("no answer from %s", uri, extra={"place": uri})
    (line,) = lines
    assert secret not in json.dumps(line)
    assert "no answer from mongodb://user:[hidden]@store/" in str(line["message"])
    assert "ConnectionError: cannot reach" in str(line["traceback"])


def test_failed_reconcile_is_logged_with_job_and_attempt_and_counted(
    lines: list[dict[str, object]],
) -> None:
    def reconcile(key: Key) -> None:
        logs.note(job=f"{key.namespace}/{key.name}", attempt=3)
        log.info("looking")
        raise ApiUnavailableError(doing="GET /x", status=500, message="down")

    before = _value("rl_operator_retries_total"), _value("rl_operator_queue_seconds_count")
    _work_once(reconcile)
    info_line, failed = lines
    assert (info_line["job"], info_line["attempt"]) == ("ns/job", 3)
    assert (failed["job"], failed["attempt"], failed["level"]) == ("ns/job", "3", "WARNING")
    assert failed["retry_in"]
    after = _value("rl_operator_retries_total"), _value("rl_operator_queue_seconds_count")
    assert after == (before[0] + 1, before[1] + 1)


GONE = ApiMissingError(doing="PATCH /x", status=404, message="not found")
FAILURES: dict[str, tuple[Exception, str, str]] = {
    "it has changed": (ApiConflictError(doing="PUT /x", status=409, message=""), "DEBUG", ""),
    "it went before it was handed over": (ApiConflictError.of_missing(GONE), "DEBUG", ""),
    "its kind has just gone": (GONE, "WARNING", ""),
    "no answer": (ApiUnavailableError(doing="GET /x", status=0, message=""), "WARNING", ""),
    "a defect of ours": (KeyError("x"), "ERROR", "KeyError"),
}


@pytest.mark.parametrize(("error", "level", "traced"), FAILURES.values(), ids=FAILURES.keys())
def test_only_defects_are_errors_with_a_traceback(
    lines: list[dict[str, object]], error: Exception, level: str, traced: str
) -> None:
    def reconcile(key: Key) -> None:
        raise error

    logging.getLogger("rl_operator").setLevel("DEBUG")
    _work_once(reconcile)
    (line,) = lines
    assert line["level"] == level
    assert traced in str(line.get("traceback", ""))
    assert bool(line.get("traceback")) is bool(traced)


def _value(name: str) -> float:
    labels = {"kind": "RLJob"} if name.endswith("_total") else {}
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def _work_once(reconcile: Reconcile) -> None:
    """Work on one key until it has failed."""
    queue: WorkQueue[Key] = WorkQueue(
        clock=lambda: 0.0, jitter=lambda: 0.0, waited=metrics.QUEUE_SECONDS.observe
    )

    def once(key: Key) -> float | None:
        queue.close()  # a key that is worked on is finished, and the next one is not begun
        return reconcile(key)

    queue.add(KEY)
    work(queue, {"RLJob": once})
