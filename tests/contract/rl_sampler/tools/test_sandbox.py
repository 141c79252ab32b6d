"""Programs that try to get out of the sandbox, with its real server and the real kernel."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_sampler.sandbox.client import Sandbox, SandboxDownError
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, Outcome
from tests.contract.rl_sampler.tools.escapes import (
    FORBIDDEN,
    TRY_CALLS,
    TRY_SIGNALS,
    TRY_WRITING,
)
from tests.contract.rl_sampler.tools.sandboxes import serving
from tests.examples import first
from tests.processes import children_of
from tests.waiting import HUNG_SECONDS, until

SECONDS, MEGABYTES = 20, 256


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    socket_path = tmp_path_factory.mktemp("sandbox") / "programs"
    with serving(socket_path):
        yield socket_path


def run(path: Path, code: str, *, seconds: int = SECONDS) -> Outcome:
    return asyncio.run(Sandbox(path, seconds=seconds, megabytes=MEGABYTES).run(code))


def lines(outcome: Outcome) -> list[str]:
    assert (outcome.ending, outcome.errors) == ("ended", "")
    return outcome.output.splitlines()


def test_ordinary_program_runs(path: Path) -> None:
    code = "import asyncio, math, numpy, sys\nprint(numpy.ones(3).sum(), math.pi)\n"
    code += (
        "async def wait():\n    await asyncio.sleep(0)\n    print('waited')\nasyncio.run(wait())"
    )
    assert lines(run(path, code)) == ["3.0 3.141592653589793", "waited"]


@pytest.mark.parametrize(
    "read",
    [
        "input()",
        "sys.stdin.read()",
        "next(sys.stdin)",
        "sys.stdin.buffer.readline().decode()",
        "open(0).read()",
        "os.fdopen(0).readline()",
        "os.read(0, 1 << 20).decode()",
        "os.read(sys.stdin.fileno(), os.fstat(0).st_size).decode()",
    ],
)
def test_input_is_a_file_on_descriptor_0(path: Path, read: str) -> None:
    code = f"import os, sys\nprint(sum(map(int, {read}.split())))"
    sandbox = Sandbox(path, seconds=SECONDS, megabytes=MEGABYTES)
    assert lines(asyncio.run(sandbox.run(code, stdin="20 22\n"))) == ["42"]


def test_input_cannot_be_changed_and_may_be_long(path: Path) -> None:
    code = (
        "import mmap, os\n"
        "for change in (lambda: os.write(0, b'1'), lambda: os.pwrite(0, b'1', 0),\n"
        "               lambda: os.truncate(0, 1), lambda: mmap.mmap(0, 0)):\n"
        "    try:\n        change()\n    except OSError:\n        print('refused')\n"
        "print(len(open(0).read()))"
    )
    sandbox = Sandbox(path, seconds=SECONDS, megabytes=MEGABYTES)
    printed = lines(asyncio.run(sandbox.run(code, stdin="1" * (4 << 20))))
    assert printed == ["refused"] * 4 + [str(4 << 20)]


def test_unlisted_system_calls_are_refused(path: Path) -> None:
    assert lines(run(path, TRY_CALLS)) == [f"{name} -1 1" for name in FORBIDDEN]


def test_i386_system_call_ends_the_program(path: Path) -> None:
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))\n"  # getpid of i386 by int 0x80
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "print('before', flush=True)\nprint(call())"
    )
    outcome = run(path, code)
    assert (outcome.ending, outcome.output) == ("failed", "before\n")


def test_no_file_can_be_written(path: Path, tmp_path: Path) -> None:
    printed = lines(run(path, TRY_WRITING.replace("{name}", tmp_path.name)))
    assert printed == ["30"] * 24
    assert not (Path("/dev/shm") / tmp_path.name).exists()


def test_other_processes_cannot_be_signalled_or_limited(path: Path) -> None:
    assert lines(run(path, TRY_SIGNALS)) == ["PermissionError"] * 7


def test_network_cannot_be_reached(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        code = (
            "import socket\n"
            "for made in (lambda: socket.create_connection(('127.0.0.1', PORT)),\n"
            "             lambda: socket.socket(socket.AF_INET6), lambda: socket.socket(\n"
            "                 socket.AF_INET, socket.SOCK_DGRAM), lambda: socket.socket(\n"
            "                 socket.AF_UNIX), lambda: socket.socketpair(\n"
            "                 socket.AF_UNIX, socket.SOCK_DGRAM)):\n"
            "    try:\n        made()\n    except OSError as error:\n        print(error.errno)\n"
        ).replace("PORT", str(port))
        assert lines(run(path, code)) == ["1"] * 5
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    "code",
    [
        "print(len(bytearray(1 << 40)))",
        "kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))",
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 1 << 26))",
        "import threading\nthreading.Thread(target=print).start()",
        "import subprocess\nsubprocess.run(['true'])",
        "import os\nwhile True:\n    os.dup(1)",
        "import sys\nsys.exit('no')",
        "def deeper():\n    return deeper()\ndeeper()",
        "import ctypes\nctypes.string_at(0)",
        "input()",
        "not python",
    ],
)
def test_program_that_exceeds_a_limit_or_raises_has_failed(path: Path, code: str) -> None:
    assert run(path, code).ending == "failed"


@pytest.mark.parametrize(
    "before",
    first(
        2,
        [
            "",
            "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n",
            "import os\nos.closerange(0, 64)\n",
            *(
                "import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_CPU, "
                f"({seconds}, {seconds}))\nexcept ValueError:\n    pass\n"
                for seconds in (0, 99)
            ),
        ],
    ),
)
def test_endless_program_ends_with_its_processor_time(path: Path, before: str) -> None:
    assert run(path, before + "while True:\n    pass", seconds=1).ending == "processor"


@pytest.mark.parametrize(
    "code", ["time.sleep(1e6)", "while True:\n    print(1, flush=True)\n    time.sleep(0.01)"]
)
def test_waiting_program_ends_with_its_wall_time(code: str, tmp_path: Path) -> None:
    with serving(tmp_path / "programs", wall_factor=1):
        outcome = run(tmp_path / "programs", f"import time\n{code}", seconds=2)
    assert outcome.ending == "wall"


def test_output_is_bounded(path: Path) -> None:
    outcome = run(path, "for _ in range(64):\n    print('x' * (1 << 16))")
    assert outcome.ending == "ended"
    assert len(outcome.output) == MAX_OUTPUT_BYTES


def handlers_of(pid: int) -> list[int]:
    """The server's handlers that run a program; one that answers a probe has no children."""
    return [child for child in children_of(pid) if children_of(child)]


def test_missing_sandbox_server_is_an_infrastructure_error(tmp_path: Path) -> None:
    path = tmp_path / "programs"
    sandbox = Sandbox(path, seconds=600, megabytes=MEGABYTES, start_seconds=0)

    async def killed() -> None:
        with serving(path) as server:
            running = asyncio.create_task(sandbox.run("while True:\n    pass"))
            (handler,) = await asyncio.to_thread(
                until, lambda: handlers_of(server.pid), what="the program's handler"
            )
            gone = os.pidfd_open(handler)
            os.kill(server.pid, signal.SIGKILL)
            os.kill(handler, signal.SIGKILL)  # in a container it would end with the server
            # A handler that was killed before it closed the listener holds it until it is gone.
            assert select.select([gone], [], [], HUNG_SECONDS)[0]
            os.close(gone)
            await running

    with pytest.raises(SandboxDownError, match="while it ran"):
        asyncio.run(killed())
    with pytest.raises(SandboxDownError, match="does not listen"):
        asyncio.run(sandbox.run("print(1)"))


def test_tests_that_cannot_be_compiled_are_an_infrastructure_error(path: Path) -> None:
    sandbox = Sandbox(path, seconds=SECONDS, megabytes=MEGABYTES)
    with pytest.raises(SandboxDownError):
        asyncio.run(sandbox.run("", tests="assert ("))


NOT_CONFINED = """
import os
from rl_sampler.sandbox.execution import execute
from rl_sampler.sandbox.wire import Program
program = Program(code="print(1)", seconds=1, megabytes=256)
outcome = execute(program, rules=os.open(os.devnull, os.O_RDONLY))
print(outcome.ending, outcome.output, outcome.errors)
"""


def test_program_that_cannot_be_confined_says_why() -> None:
    output = subprocess.run(
        [sys.executable, "-c", NOT_CONFINED], capture_output=True, text=True, check=True
    ).stdout
    assert output.startswith("lost  Traceback")
    assert "Landlock refused the rules" in output
