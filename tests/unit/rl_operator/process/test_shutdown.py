"""Tasks that fail are logged by name, also while the process is ending."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rl_operator.process import shutdown
from rl_operator.watch.watchdog import KindGoneError
from tests.waiting import HUNG_SECONDS


async def fail() -> None:
    raise RuntimeError("it broke")


async def fail_once_asked() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise RuntimeError("it broke")


async def go_on() -> None:
    await asyncio.Event().wait()


TASKS: dict[str, tuple[dict[str, Coroutine[Any, Any, None]], list[str]]] = {
    "the first": ({"first": fail(), "other": go_on()}, ["first ended"]),
    "another one at its end": (
        {"first": asyncio.sleep(0), "other": fail_once_asked()},
        ["other ended"],
    ),
    "none": ({"first": asyncio.sleep(0), "other": go_on()}, []),
}


async def test_tasks_of_a_hanging_executor_that_have_not_begun_are_cancelled() -> None:
    executor, hangs = ThreadPoolExecutor(1), threading.Event()
    first, second = executor.submit(hangs.wait), executor.submit(hangs.wait)
    before = asyncio.all_tasks()
    ending = asyncio.create_task(shutdown.ended(executor, seconds=0.05))
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before | {ending}  # kopf would cancel any other one
    await ending
    assert (first.done(), second.cancelled()) == (False, True)
    hangs.set()
    first.result()


async def test_a_lost_watch_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def guard() -> None:
        raise KindGoneError(["/api/v1/pods"])

    done, _ = await asyncio.wait({asyncio.create_task(guard(), name="watchdog")})
    await shutdown.end(done, set())
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "watchdog ended: the API server no longer serves /api/v1/pods"
    )
    assert record.exc_info is None


@pytest.mark.parametrize(("tasks", "messages"), TASKS.values(), ids=TASKS.keys())
async def test_tasks_that_fail_are_logged_by_name(
    tasks: dict[str, Coroutine[Any, Any, None]],
    messages: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    begun = [asyncio.create_task(task, name=name) for name, task in tasks.items()]
    done, pending = await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
    await shutdown.end(done, pending)
    del begun, done, pending
    gc.collect()  # of a task whose failure nobody has read asyncio tells then
    assert [record.getMessage() for record in caplog.records] == messages


async def test_a_task_that_kopf_has_cancelled_counts_as_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    done, _ = await asyncio.wait({asyncio.create_task(cancelled(), name="reconciling")})
    assert shutdown.failed(done)
    await shutdown.end(done, set())
    assert [record.getMessage() for record in caplog.records] == [
        "reconciling was cancelled by another task"
    ]


async def test_a_task_that_does_not_end_in_time_is_logged_by_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "STOP_SECONDS", 0.05)
    hangs = asyncio.create_task(go_on(), name="watches")  # which is not cancelled
    await shutdown.end(set(), {hangs})
    assert [record.getMessage() for record in caplog.records] == ["watches did not end within 0 s"]
    hangs.cancel()


A_PROCESS = """
import asyncio, threading
from rl_operator.process import shutdown

async def run() -> None:
    await shutdown.released(threading.Event().wait)
    shutdown.leave_in_time(3)

asyncio.run(run())
"""


def test_a_process_ends_although_the_api_server_does_not_answer() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", A_PROCESS], capture_output=True, text=True, timeout=HUNG_SECONDS
    )
    assert ended.returncode == 3
    released, left = ended.stderr.splitlines()
    assert released == "lease not released within 3 s: the next leader waits until it expires"
    assert left.startswith("exiting while these threads wait for answers: ")
    assert "asyncio_0" in left
