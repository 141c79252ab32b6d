"""Programs of episodes as processes of the container ``code``."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_sampler.code.wire import ProgramCall
from rl_sampler.user_code.programs.episode_folders import remove_left
from rl_sampler.user_code.programs.process import HEAD_BYTES, TAIL_BYTES, Log, run_program

PR_SET_CHILD_SUBREAPER = 36
"""Of Linux, ``prctl(2)``."""


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans fall to this process, as to the first process of a container."""
    system = ctypes.CDLL(None, use_errno=True)
    assert system.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert system.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


def a_program(
    code: str,
    *,
    seconds: float = 3600,
    megabytes: int | None = None,
    command: list[str] | None = None,
) -> ProgramCall:
    return {
        "command": command or [sys.executable, "-S", "-c", code],
        "seconds": seconds,
        "megabytes": megabytes,
        "folder": None,
    }


async def run(code: str, **options: Any) -> dict[str, Any]:
    return await run_program(a_program(code, **options), task={"answer": "42"}, environment={})


async def test_a_call_of_an_earlier_release_names_no_folder() -> None:
    program = a_program("import os; print(os.getcwd() == os.environ['HOME'])")
    del program["folder"]
    ran = await run_program(program, task={}, environment={})
    assert ran["log"] == "True\n"


async def test_program_is_given_its_task_and_a_folder_of_its_own() -> None:
    code = (
        "import json, os; task = json.load(open(os.environ['RL_TASK_FILE']));"
        "print(task['answer'], os.environ['KEY'], os.getcwd() == os.environ['HOME']);"
        "print(os.getcwd()); raise SystemExit(7)"
    )
    ran = await run_program(
        a_program(code), task={"answer": "42"}, environment={"KEY": "of the session"}
    )
    assert (ran["exit_code"], ran["late"]) == (7, False)
    output, folder = ran["log"].splitlines()
    assert output == "42 of the session True"
    assert not await asyncio.to_thread(os.path.exists, folder), "it is removed"


def test_log_keeps_start_and_end() -> None:
    log = Log()
    for chunk in (b"begin", b"x" * 3 * (HEAD_BYTES + TAIL_BYTES), b"end"):
        log.add(chunk)
    assert log.text.startswith("begin")
    assert log.text.endswith("end")
    assert "[…]" in log.text
    assert len(log.text) < HEAD_BYTES + TAIL_BYTES + 10


async def test_program_is_killed_at_its_time_limit_with_what_it_started() -> None:
    code = (
        "import os, time; child = os.fork(); print(child, flush=True) if child else None;"
        "time.sleep(600)"
    )
    ran = await run(code, seconds=1)
    assert (ran["exit_code"], ran["late"]) == (None, True)
    _expect_gone(int(ran["log"]))


async def test_what_a_program_leaves_behind_does_not_stay_as_a_zombie(
    subreaper: None,
) -> None:
    code = (
        "import os, time; child = os.fork();print(child, flush=True) if child else time.sleep(600)"
    )
    ran = await run(code)
    assert ran["exit_code"] == 0
    assert not await asyncio.to_thread(os.path.exists, f"/proc/{int(ran['log'])}")


LEAVING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    os._exit(0)
os.wait()
children = [int(p) for p in os.listdir("/proc") if p.isdigit()]
for pid in children:
    try:
        mine = os.environ["RL_TASK_FILE"].encode() in open(f"/proc/{pid}/environ", "rb").read()
    except OSError:
        continue
    if mine and pid != os.getpid():
        print(pid, flush=True)
"""


async def test_what_a_program_leaves_in_a_session_of_its_own_is_ended() -> None:
    ran = await run(LEAVING)
    assert ran["exit_code"] == 0
    (left,) = ran["log"].split()
    _expect_gone(int(left))


async def test_a_server_removes_the_folders_of_killed_ones_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = tmp_path / "folders"
    (folders / "episode-left" / "inside").mkdir(parents=True)
    (folders / "other").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    mark = tmp_path / "pid"
    os.mkfifo(mark)
    code = f"import time; open({str(mark)!r}, 'w').write('1'); time.sleep(600)"
    running = asyncio.create_task(run(code))
    await asyncio.to_thread(mark.read_text)
    assert await asyncio.to_thread(remove_left) == 1
    left = sorted(path.name for path in await asyncio.to_thread(lambda: [*folders.iterdir()]))
    used = [name for name in left if name.startswith("episode-")]
    assert len(used) == 1, "the folder of the program that runs"
    assert left == sorted([*used, "other"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not await asyncio.to_thread((folders / used[0]).exists)


async def test_program_that_needs_more_memory_than_allowed_fails() -> None:
    code = "bytearray(300_000_000)"
    assert (await run(code))["exit_code"] == 0
    limited = await run(code, megabytes=200)
    assert limited["exit_code"] == 1
    assert "MemoryError" in limited["log"]


async def test_program_that_does_not_exist_is_the_users_mistake() -> None:
    ran = await run("", command=["no-such-agent"])
    assert ran["failure"]["kind"] == "user"
    assert "no-such-agent" in ran["failure"]["message"]


async def test_cancelled_program_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    os.mkfifo(mark)
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    running = asyncio.create_task(run(code))
    pid = int(await asyncio.to_thread(mark.read_text))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    _expect_gone(pid)


def _expect_gone(pid: int) -> None:
    """A killed process may remain as a zombie of the test's own parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return
    assert state == "Z"


async def test_module_of_the_users_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import json; print(json.dumps('found'))")
    monkeypatch.setenv("RL_CODE_FOLDER", str(tmp_path))
    ran = await run("", command=[sys.executable, "-m", "mine"])
    assert json.loads(ran["log"]) == "found"
