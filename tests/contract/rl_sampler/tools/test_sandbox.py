"""Programs that try to get out of the sandbox, with its real server and the real kernel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_sampler.sandbox.client import Sandbox, SandboxDownError
from rl_sampler.sandbox.execution import execute
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, Outcome, Program
from tests.contract.rl_sampler.tools.sandboxes import SECRET, serving
from tests.waiting import until

SECONDS, MEGABYTES = 20, 256
FORBIDDEN = {
    "pwrite64": 18,
    "shmget": 29,
    "socket": 41,
    "connect": 42,
    "accept": 43,
    "sendmsg": 46,
    "bind": 49,
    "listen": 50,
    "clone": 56,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "msgget": 68,
    "truncate": 76,
    "ftruncate": 77,
    "rename": 82,
    "mkdir": 83,
    "creat": 85,
    "link": 86,
    "unlink": 87,
    "symlink": 88,
    "chmod": 90,
    "ptrace": 101,
    "setuid": 105,
    "setsid": 112,
    "rt_sigqueueinfo": 129,
    "mknod": 133,
    "personality": 135,
    "mlock": 149,
    "chroot": 161,
    "mount": 165,
    "tkill": 200,
    "sched_setaffinity": 203,
    "mq_open": 240,
    "add_key": 248,
    "keyctl": 250,
    "unshare": 272,
    "inotify_init1": 294,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "seccomp": 317,
    "memfd_create": 319,
    "bpf": 321,
    "execveat": 322,
    "userfaultfd": 323,
    "copy_file_range": 326,
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "pidfd_open": 434,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "of the future": 1000,
    "write of x32": 0x40000001,
    "of nobody": 0xFFFFFFFF,
}
TRY_CALLS = f"""
import ctypes
kernel = ctypes.CDLL(None, use_errno=True)
for name, number in {FORBIDDEN}.items():
    ctypes.set_errno(0)
    print(name, kernel.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0), ctypes.get_errno())
"""
TRY_WRITING = """
import os
for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_CREAT,
              os.O_RDONLY | os.O_TRUNC, os.O_RDWR | os.O_TMPFILE):
    for path in ("/tmp/{name}", "/dev/shm/{name}", "/tmp", "/dev/null"):
        try:
            os.open(path, flags)
        except OSError as error:
            print(error.errno)
        else:
            print("written", path)
"""
TRY_SIGNALS = """
import fcntl, os, resource, signal
def attempt(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        print(type(error).__name__)
    else:
        print("done", what, arguments)
reads, writes = os.pipe()
attempt(os.kill, os.getppid(), 9)
attempt(os.kill, os.getppid(), 0)
attempt(os.kill, -1, 9)
attempt(os.kill, 0, 9)
attempt(os.kill, os.getpid(), 9)
attempt(fcntl.fcntl, reads, fcntl.F_SETOWN, os.getppid())
attempt(resource.prlimit, os.getppid(), resource.RLIMIT_CPU, (1, 1))
"""
NEIGHBOURS = """
import ctypes, os, time
me, parent = os.getpid(), os.getppid()
def be(name):
    assert ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0) == 0
def neighbours():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, state = open(f"/proc/{pid}/stat").read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if int(state.split()[1]) == parent and int(pid) != me and state.split()[0] != "Z":
            found[name] = int(pid)
    return found
def wait(condition):
    while not condition():
        time.sleep(0.02)
"""
READ_NEIGHBOUR = f"""{NEIGHBOURS}
be("reading")
wait(lambda: "seen" in neighbours())
for pid in (parent, neighbours()["seen"]):
    for file in ("environ", "mem", "maps", "fd/0", "cwd/etc/passwd"):
        try:
            open(f"/proc/{{pid}}/{{file}}", "rb").close()
        except OSError as error:
            print(type(error).__name__)
        else:
            print("read", pid, file)
"""
BE_READ = f"""{NEIGHBOURS}
wait(lambda: "reading" in neighbours())
be("seen")
wait(lambda: not neighbours())
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("sandbox") / "programs"
    with serving(found):
        yield found


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
    found = lines(run(path, TRY_WRITING.replace("{name}", tmp_path.name)))
    assert found == ["30"] * 24
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


def test_programs_cannot_read_the_server_or_each_other(path: Path) -> None:
    async def both() -> list[Outcome]:
        sandbox = Sandbox(path, seconds=SECONDS, megabytes=MEGABYTES)
        return await asyncio.gather(*(sandbox.run(code) for code in (READ_NEIGHBOUR, BE_READ)))

    reader, other = asyncio.run(both())
    assert lines(other) == []
    assert lines(reader) == ["PermissionError"] * 10
    everything = run(
        path,
        "import glob, os\nfor one in glob.glob('/proc/*/environ'):\n    try:\n"
        "        print(open(one, 'rb').read())\n    except OSError:\n        print('refused')\n"
        "print(dict(os.environ))",
    )
    assert "refused" in everything.output
    assert SECRET not in everything.output


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
    [
        "",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n",
        "import os\nos.closerange(0, 64)\n",
        "import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_CPU, (99, 99))\n"
        "except ValueError:\n    pass\n",
    ],
)
def test_endless_program_ends_with_its_processor_time(path: Path, before: str) -> None:
    assert run(path, before + "while True:\n    pass", seconds=1).ending == "processor"


@pytest.mark.parametrize(
    "code", ["time.sleep(1e6)", "while True:\n    print(1, flush=True)\n    time.sleep(0.01)"]
)
def test_waiting_program_ends_with_its_wall_time(code: str) -> None:
    program = Program(code=f"import time\n{code}", seconds=2, megabytes=MEGABYTES)
    assert execute(program, wall_factor=1).ending == "wall"


def test_output_is_bounded(path: Path) -> None:
    outcome = run(path, "for _ in range(64):\n    print('x' * (1 << 16))")
    assert outcome.ending == "ended"
    assert len(outcome.output) == MAX_OUTPUT_BYTES


def children_of(pid: int) -> list[int]:
    """Of all of a process's threads, some of which may end meanwhile."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [int(part) for part in (thread / "children").read_text().split()]
    return found


def test_missing_sandbox_server_is_an_infrastructure_error(tmp_path: Path) -> None:
    path = tmp_path / "programs"
    sandbox = Sandbox(path, seconds=600, megabytes=MEGABYTES, start_seconds=0)

    async def killed() -> None:
        with serving(path) as server:
            running = asyncio.create_task(sandbox.run("while True:\n    pass"))
            (program,) = await asyncio.to_thread(
                until, lambda: children_of(server.pid), what="the program to run"
            )
            os.kill(server.pid, signal.SIGKILL)
            os.kill(program, signal.SIGKILL)  # in a container it would end with the server
            await running

    with pytest.raises(SandboxDownError, match="while it ran"):
        asyncio.run(killed())
    with pytest.raises(SandboxDownError, match="does not listen"):
        asyncio.run(sandbox.run("print(1)"))
