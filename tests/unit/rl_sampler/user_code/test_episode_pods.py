"""Pods of single episodes: a claim has a pod to itself, and no pod serves twice."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_sampler.code.client import CodeContainerError
from rl_sampler.code.replies import Judged, Ran
from rl_sampler.engine.counters import Counters
from rl_sampler.user_code import program_pods
from rl_sampler.user_code.programs.single_use import EPISODE_ENDED, POD_USED, TOKEN
from tests.kube.episode_pods import SETTINGS, EpisodePod, EpisodePods
from tests.servers import ROOT, free_port
from tests.unit.rl_sampler.user_code.test_program_pods import KEY, RUN, a_run
from tests.waiting import HUNG_SECONDS, until

SOURCES = ("contracts", "sampler_image")


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[EpisodePod]:
    made = EpisodePod.start(tmp_path / "pod", run=RUN, settings=SETTINGS)
    until(lambda: made.ready, what="the pod")
    yield made
    made.kill()


def client(port: int, *, key: str = KEY, seconds: float = 20) -> program_pods.EpisodePods:
    address = f"127.0.0.1:{port}"
    return program_pods.EpisodePods(address, key=key, counters=Counters(), start_seconds=seconds)


async def ended(pod: EpisodePod) -> int:
    return await asyncio.to_thread(pod.process.wait, HUNG_SECONDS)


async def test_a_pod_serves_one_episode_and_ends(pod: EpisodePod) -> None:
    calls = client(pod.port)
    await calls.ping()
    await calls.ping()
    ran = await calls.ask(a_run("print('played')"), Ran, seconds=60)
    assert (ran.exit_code, ran.log) == (0, "played\n")
    assert await ended(pod) == EPISODE_ENDED


async def test_nothing_runs_without_key_or_claim(pod: EpisodePod, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')"
    with pytest.raises(CodeContainerError):
        await client(pod.port, key="another", seconds=0).ask(a_run(code), Ran, seconds=60)
    plain = program_pods.ProgramPods(f"127.0.0.1:{pod.port}", key=KEY, counters=Counters())
    ran = await plain.ask(a_run(code), Ran, seconds=60)
    assert ran.failure is not None
    assert ran.failure.kind == "down"
    assert not mark.exists()


async def test_an_episode_is_played_in_a_pod_of_its_image(pod: EpisodePod) -> None:
    """A group may begin as soon as any image has a free pod."""
    of_b = client(pod.port)
    pods = program_pods.EpisodePods(
        f"127.0.0.1:{free_port()}",  # where none is ready
        key=KEY,
        counters=Counters(),
        image="a:1",
        others={"b:1": of_b},
    )
    assert pods.for_image("") is pods.for_image("a:1") is pods
    with pytest.raises(CodeContainerError, match=r"c:1: name it in agent\.program\.images"):
        pods.for_image("c:1")
    await pods.ping()
    ran = await pods.for_image("b:1").ask(a_run("print('played')"), Ran, seconds=60)
    assert ran.log == "played\n"


async def test_a_container_that_is_started_again_serves_nobody(pod: EpisodePod) -> None:
    """Also where the episode's program wrote what it likes into the folder of the token."""
    forged = f"open({str(pod.folder / 'once' / TOKEN)!r}, 'w').write('forged')"
    await client(pod.port).ask(a_run(forged), Ran, seconds=60)
    await ended(pod)
    for _ in range(2):
        again = EpisodePod.restart(pod.folder, port=free_port())
        assert await ended(again) == POD_USED


def test_programs_of_the_same_user_cannot_read_the_server() -> None:
    """A superuser may read everything, so the processes here have another user, as in a pod."""
    script = (
        "import ctypes, os, sys\n"
        "from rl_sampler.user_code.programs.single_use import SET_DUMPABLE, guard\n"
        "os.getuid() or os.setuid(65531)\n"
        "def readable():\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os._exit(not os.access(f'/proc/{os.getppid()}/environ', os.R_OK))\n"
        "    return os.waitpid(child, 0)[1] == 0\n"
        "ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)  # setuid has taken it\n"
        "before = readable()\n"
        "guard()\n"
        "sys.exit((before, readable()) != (True, False))"
    )
    path = {"PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in SOURCES)}
    assert subprocess.run([sys.executable, "-c", script], env=path, check=False).returncode == 0


async def test_what_a_program_leaves_behind_ends_with_its_episode(
    pod: EpisodePod, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    code = (
        "import os, subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        f"open({str(mark)!r}, 'w').write(str(left.pid))"
    )
    ran = await client(pod.port).ask(a_run(code), Ran, seconds=60)
    assert ran.exit_code == 0, ran.log
    await ended(pod)
    pid = int(mark.read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of what it left")


LISTENER = """
import errno, socket
reused, shared = socket.SO_REUSEADDR, socket.SO_REUSEPORT
ways = [(), (reused,), (shared,), (reused, shared)]
for family, address in ((socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "")):
    for options in ways:
        with socket.socket(family) as taken:
            for option in options:
                taken.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                taken.bind((address, SERVED))
                taken.listen()
                print("listens", family, address, options)
            except OSError as error:
                print(errno.errorcode[error.errno])
"""


async def test_no_program_listens_in_the_place_of_its_server(pod: EpisodePod) -> None:
    """The Service would lead other agents to it, who send the run's key."""
    ran = await client(pod.port).ask(
        a_run(LISTENER.replace("SERVED", str(pod.port))), Ran, seconds=60
    )
    assert ran.log.split() == ["EADDRINUSE"] * 12


def an_archive(script: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("test.sh")
        entry.size, entry.mode = len(script), 0o755
        tar.addfile(entry, io.BytesIO(script.encode()))
    return packed.getvalue()


async def judged_after(pod: EpisodePod, code: str, script: str) -> tuple[Ran, Judged]:
    """Run a program and then tests, over one connection."""
    tests = {"archive": base64.b64encode(an_archive(script)).decode(), "seconds": 20, "folder": ""}
    async with client(pod.port).call(a_run(code)) as channel:
        ran = await channel.receive(Ran)
        await channel.send({"call": "test", "tests": tests, "environment": {"WANTED": "7"}})
        return ran, await channel.receive(Judged)


JUDGE = """#!/bin/sh
cd "$(dirname "$0")/.."
ls tests
[ "$(cat done)" = "$WANTED" ] && echo 1 > logs/verifier/reward.txt
"""


FORGER = """
import os, subprocess, sys
os.makedirs(ROOT + "/tests/locked")
os.makedirs(ROOT + "/logs/verifier")
open(ROOT + "/tests/locked/a", "w")
os.chmod(ROOT + "/tests/locked", 0)
open(ROOT + "/logs/verifier/reward.json", "w").write("1")
again = "while True: open(" + repr(ROOT + "/logs/verifier/reward.txt") + ", 'w').write('1')"
subprocess.Popen([sys.executable, "-S", "-c", again], start_new_session=True)
os.chdir(ROOT + "/logs/verifier")
for _ in range(2500):  # deeper than Python calls itself, and a longer path than Linux takes
    os.mkdir("d")
    os.chdir("d")
"""


async def test_tests_come_after_the_program_and_read_what_it_did(pod: EpisodePod) -> None:
    root = pod.folder / "root"
    code = (
        "import os\n"
        f"os.makedirs({str(root)!r})\n"
        f"open({str(root / 'done')!r}, 'w').write('7')\n"
        f"print(os.path.exists({str(root / 'tests')!r}))"
    )
    ran, judged = await judged_after(pod, code, JUDGE)
    assert (ran.exit_code, ran.log) == (0, "False\n"), "it has not seen the tests"
    assert (judged.exit_code, judged.reward_text, judged.reward_json) == (0, "1\n", None)
    assert judged.log == "test.sh\n"


async def test_a_program_cannot_leave_tests_or_rewards_of_its_own(pod: EpisodePod) -> None:
    root = pod.folder / "root"
    code = FORGER.replace("ROOT", repr(str(root)))
    ran, judged = await judged_after(pod, code, JUDGE)
    assert ran.exit_code == 0, ran.log
    assert (judged.reward_text, judged.reward_json) == (None, None)
    assert "test.sh\n" in judged.log
    assert "locked" not in judged.log


CONTAINER = (
    *("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
    *("sh", "-c", 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"', "sh"),
)
"""Makes the server the first process of a namespace, and a small disk of a folder."""
CHAINS = """
import os
for _ in range(10):
    if os.fork() == 0:
        os.setsid()
        while os.fork() == 0:
            pass
        os._exit(0)
"""
"""Processes that each start the next one and end: no list of them is ever true."""
FILL = """
import os
with open(ROOT + "/large", "wb", 0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError as error:
        print(os.strerror(error.errno))
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[EpisodePod]:
    """A pod whose root is a disk of one megabyte, and whose server is its first process."""
    folder = tmp_path / "pod"
    (folder / "root").mkdir(parents=True)
    within = (*CONTAINER, str(folder / "root"))
    made = EpisodePod.start(folder, run=RUN, settings=SETTINGS, within=within)
    until(lambda: made.ready, what="the pod")
    yield made
    made.kill()


async def test_processes_that_start_each_other_without_end_are_ended_before_the_tests(
    container: EpisodePod,
) -> None:
    ran, judged = await judged_after(container, CHAINS, JUDGE)
    assert ran.exit_code == 0, ran.log
    assert judged.prevented == ""
    assert judged.log.startswith("test.sh\n")


async def test_a_full_disk_is_what_the_program_has_made_of_its_tests(
    container: EpisodePod,
) -> None:
    code = FILL.replace("ROOT", repr(str(container.folder / "root")))
    ran, judged = await judged_after(container, code, JUDGE)
    assert ran.log == "No space left on device\n"
    assert judged.failure is None, "no failure of the pod, which would be no data"
    assert judged.prevented == "it has left no room on the disk for its tests"


async def test_the_end_of_the_agent_ends_the_pod(pod: EpisodePod, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"import time; open({str(mark)!r}, 'w'); time.sleep(600)"
    call = asyncio.create_task(client(pod.port).ask(a_run(code), Ran, seconds=60))
    await asyncio.to_thread(until, mark.exists, what="start")
    call.cancel()
    await asyncio.wait({call})
    assert await ended(pod) == EPISODE_ENDED


async def test_the_end_of_the_pod_is_an_error_and_no_result(
    pod: EpisodePod, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    code = f"import time; open({str(mark)!r}, 'w'); time.sleep(60)"
    call = asyncio.create_task(client(pod.port).ask(a_run(code), Ran, seconds=60))
    await asyncio.to_thread(until, mark.exists, what="start")
    pod.kill()
    with pytest.raises(CodeContainerError, match="ended during the call"):
        await call


async def test_more_episodes_than_pods_wait_and_none_shares_one(tmp_path: Path) -> None:
    port = free_port()
    pods = EpisodePods(tmp_path, run=RUN, settings=SETTINGS, port=port)
    code = "import os; print(os.getppid())"
    with pods.serving(3):
        asked = [client(port).ask(a_run(code), Ran, seconds=60) for _ in range(9)]
        ran = await asyncio.gather(*asked)
    servers = Counter(each.log.strip() for each in ran)
    assert len(servers) == 9, servers
    assert {each.exit_code for each in ran} == {0}
