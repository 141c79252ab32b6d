"""The server of a pod of programs as users' images start it, and the agent's client of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.ids import RunId
from rl_sampler.code.client import CodeContainer, CodeContainerError
from rl_sampler.code.replies import Ran
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.user_code.program_pod import KEY_DIGEST, SERVER_FOLDER, prepare_programs, purpose
from rl_sampler.user_code.program_pods import ProgramPods, ProgramServers
from tests import code_container
from tests.kube.episode_pods import SETTINGS
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

RUN = RunId("run")
KEY = SETTINGS.shared_token(purpose(RUN))


def a_run(code: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-S", "-c", code]
    program = {"command": command, "seconds": 60, "megabytes": None, "folder": None}
    return {"call": "run", "program": program, "task": {"id": 1}, "environment": environment}


class Server:
    """The server's process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.port = process, port

    def client(self, key: str = KEY, *, start_seconds: float = 20) -> ProgramPods:
        address = f"127.0.0.1:{self.port}"
        return ProgramPods(address, key=key, counters=Counters(), start_seconds=start_seconds)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    prepare_programs(folder, run=RUN, settings=SETTINGS)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(folder / SERVER_FOLDER)),
        *("--port", str(port), "--key-digest", str(folder / KEY_DIGEST)),
        env={"TMPDIR": str(folder)},
    )
    try:
        yield Server(process, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until_closed(server: Server) -> None:
    """Wait until nothing listens."""
    with contextlib.suppress(CodeContainerError):
        async with asyncio.timeout(HUNG_SECONDS):
            while True:
                await server.client(start_seconds=0).ping()


async def test_programs_run_with_the_standard_library_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        client = server.client()
        await client.ping()
        code = "import os; print(os.environ['KEY'], open(os.environ['RL_TASK_FILE']).read())"
        many = [client.ask(a_run(code, KEY=str(n)), Ran, seconds=60) for n in range(8)]
        ran = await asyncio.gather(*many)
    assert [each.log.strip() for each in ran] == [f'{n} {{"id": 1}}' for n in range(8)]
    assert {each.exit_code for each in ran} == {0}


INTERRUPT = """
import os, signal, sys
os.kill(os.getppid(), signal.SIGINT)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
sys.exit(3)
"""


async def test_a_program_cannot_end_its_server_by_an_interrupt(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        pods = await server.client().ask(a_run(INTERRUPT), Ran, seconds=60)
        assert server.process.returncode is None
    (tmp_path / "spec.json").write_text("{}")
    path = tmp_path / "calls"
    with code_container.process(path, tmp_path / "spec.json", environment={}) as process:
        client = CodeContainer(path, counters=Counters(), start_seconds=20)
        beside = await client.ask(a_run(INTERRUPT), Ran, seconds=60)
        assert process.poll() is None
    for ran in (pods, beside):
        assert (ran.log, ran.exit_code) == ("True\n", 3), "its own signals are as usual"


async def test_a_request_may_be_long(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        request = a_run("import os; print(os.path.getsize(os.environ['RL_TASK_FILE']))")
        request["task"] = {"text": "x" * (8 << 20)}
        ran = await server.client().ask(request, Ran, seconds=60)
    assert int(ran.log) > 8 << 20


@pytest.mark.parametrize("key", ["", "of another run", "x" * 5000])
async def test_nothing_runs_without_the_key(tmp_path: Path, key: str) -> None:
    mark = tmp_path / "ran"
    async with serving(tmp_path) as server:
        await server.client().ping()
        code = f"open({str(mark)!r}, 'w')"
        with pytest.raises(CodeContainerError, match="pod of programs"):
            await server.client(key).ask(a_run(code), Ran, seconds=60)
        await server.client().ping()
    assert not mark.exists()


def test_the_key_is_not_in_the_pod(tmp_path: Path) -> None:
    prepare_programs(tmp_path, run=RUN, settings=SETTINGS)
    prepare_programs(tmp_path, run=RUN, settings=SETTINGS)  # the init container starts again
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        text = path.read_text()
        assert KEY not in text
        assert text.strip() != "secret"


async def test_a_program_ends_with_its_call(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid()) + ' ');time.sleep(600)"
    )
    async with serving(tmp_path) as server:
        call = asyncio.create_task(server.client().ask(a_run(code), Ran, seconds=60))
        await asyncio.to_thread(
            until, lambda: mark.exists() and mark.read_text().endswith(" "), what="start"
        )
        call.cancel()
        await asyncio.wait({call})
        pid = int(mark.read_text())
        await asyncio.to_thread(until, lambda: not Path(f"/proc/{pid}").exists(), what="its end")


async def test_the_end_of_the_pod_is_an_error_and_no_result(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    async with serving(tmp_path) as server:
        code = f"import time; open({str(mark)!r}, 'w'); time.sleep(60)"
        call = asyncio.create_task(server.client().ask(a_run(code), Ran, seconds=60))
        await asyncio.to_thread(until, mark.exists, what="start")
        server.process.kill()
        with pytest.raises(CodeContainerError, match="ended during the call"):
            await call


async def test_a_pod_that_is_stopped_lets_its_programs_end(tmp_path: Path) -> None:
    mark, go = tmp_path / "ran", tmp_path / "go"
    async with serving(tmp_path) as server:
        code = (
            f"import os, time; open({str(mark)!r}, 'w')\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            "print('finished')"
        )
        call = asyncio.create_task(server.client().ask(a_run(code), Ran, seconds=60))
        await asyncio.to_thread(until, mark.exists, what="start")
        server.process.send_signal(signal.SIGTERM)
        await until_closed(server)
        go.touch()
        assert (await call).log == "finished\n"
        assert await server.process.wait() == 0


async def test_a_group_waits_for_a_pod_that_answers(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        pods = ProgramServers(server.client(), counters=Counters())
        assert (await pods.open()).listed == []
        server.process.kill()
        await server.process.wait()
        gone = ProgramServers(server.client(start_seconds=0), counters=Counters())
        with pytest.raises(ToolDownError, match="does not listen"):
            await gone.open()
