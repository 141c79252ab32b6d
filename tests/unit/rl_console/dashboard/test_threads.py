"""Threads that wait for a server that does not answer keep neither pages nor Ctrl-C waiting."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_console.dashboard.app import MOST_ASKING, MOST_LISTINGS, MOST_LIVE_READS, application
from rl_console.dashboard.threads import Threads
from rl_console.errors import ClusterUnavailableError
from tests.network.loopback import hanging
from tests.network.served import served
from tests.waiting import HUNG_SECONDS, until

KEY = "the-key"
RUN = "/n/lab/jobs/sums"


def test_a_result_and_an_error_are_passed_on() -> None:
    async def both() -> None:
        threads = Threads(1)
        assert await threads.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 7, 0)
        assert await threads.run(divmod, 7, 7) == (1, 0)

    asyncio.run(both())


def test_a_place_is_taken_until_the_function_ends_also_where_nobody_waits() -> None:
    go_on, ran = threading.Event(), list[int]()

    async def abandon() -> None:
        threads = Threads(1)
        first = asyncio.create_task(threads.run(go_on.wait))
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(threads.run(ran.append, 2))
        with contextlib.suppress(asyncio.CancelledError):
            await first
        await asyncio.sleep(0)
        assert not ran
        go_on.set()
        await second
        assert ran == [2]

    asyncio.run(abandon())


class Waiting:
    """A source whose operator does not answer until ``go_on`` is set."""

    def __init__(self) -> None:
        self.go_on, self.patient = threading.Event(), set[bool]()
        self.asked = self.listed = 0

    def jobs(self, namespace: str) -> list[dict[str, Any]]:
        if namespace == "large":
            self.listed += 1
            self.go_on.wait()
        return []

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace, "uid": "u", "generation": 1}
        return {"metadata": metadata, "spec": {}, "status": {}}

    pools = events = jobs

    def ask(self, namespace: str, job: str, query: Any, *, patient: bool = True) -> Any:
        self.asked += 1
        self.patient.add(patient)
        self.go_on.wait()
        raise ClusterUnavailableError(doing="asking", cause="503", status=503)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    source = Waiting()
    yield source
    source.go_on.set()


def opened(port: int, path: str, cookie: str = "") -> http.client.HTTPConnection:
    """A connection that has asked for a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HUNG_SECONDS)
    connection.request("GET", path, headers={"Cookie": cookie})
    return connection


def entered(port: int, key: str) -> str:
    """The cookie that lets into the pages."""
    with contextlib.closing(opened(port, f"/?key={key}")) as connection:
        return (connection.getresponse().getheader("set-cookie") or "").partition(";")[0]


def test_pages_that_wait_for_the_operator_keep_no_list_of_runs_waiting(waiting: Waiting) -> None:
    source: Any = waiting
    pages = [*[f"{RUN}/live"] * (MOST_LIVE_READS + 4), *[f"{RUN}/metrics.json"] * (MOST_ASKING + 4)]
    app = application(source, key=KEY, namespace="lab")
    with served(app) as port, contextlib.ExitStack() as left:
        cookie = entered(port, KEY)
        for page in pages:
            left.callback(opened(port, page, cookie).close)
        until(lambda: waiting.asked == MOST_LIVE_READS + MOST_ASKING, what="the waiting pages")
        with contextlib.closing(opened(port, "/n/lab", cookie)) as connection:
            assert connection.getresponse().status == 200
        assert waiting.patient == {True, False}, "a live page asks once, and looks again soon"
        waiting.go_on.set()


def test_few_lists_of_runs_are_made_at_the_same_time(waiting: Waiting) -> None:
    """Each takes memory."""
    source: Any = waiting
    app = application(source, key=KEY, namespace="lab")
    with served(app) as port, contextlib.ExitStack() as left:
        cookie = entered(port, KEY)
        lists = [opened(port, "/n/large", cookie) for _ in range(MOST_LISTINGS + 3)]
        for each in lists:
            left.callback(each.close)
        until(lambda: waiting.listed == MOST_LISTINGS, what="the first lists")
        with contextlib.closing(opened(port, "/static/style.css", cookie)) as connection:
            connection.getresponse()  # by now the others have come, too
        assert waiting.listed == MOST_LISTINGS
        waiting.go_on.set()
        assert [each.getresponse().status for each in lists] == [200] * len(lists)


def test_ctrl_c_ends_the_dashboard_while_the_api_server_hangs(tmp_path: Path) -> None:
    with contextlib.ExitStack() as running, hanging() as (url, _):
        file = tmp_path / "kubeconfig"
        written = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "c", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        file.write_text(json.dumps(written))
        # A shell starts programs in the background with SIGINT ignored, and so these tests, too.
        command = ["env", "--default-signal=INT", sys.executable, "-u", "-m", "rl_console"]
        command += ["dashboard", "--kubeconfig", str(file)]
        process = subprocess.Popen(
            [*command, "--request-timeout", f"{2 * HUNG_SECONDS}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.callback(process.kill)
        assert process.stdout is not None
        address = re.search(r":(\d+)/\?key=(\S+)", process.stdout.readline())
        assert address is not None
        port = int(address[1])
        cookie = entered(port, address[2])
        with contextlib.closing(opened(port, f"{RUN}/live", cookie)) as connection:
            assert connection.getresponse().readline() == b"retry: 5000\n"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=HUNG_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in said
