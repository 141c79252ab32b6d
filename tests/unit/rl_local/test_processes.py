"""Components as real processes, in a state folder of the test's own."""

import dataclasses
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_local.control_plane import processes
from rl_local.control_plane.components import Component
from rl_local.control_plane.probes import answers
from rl_local.errors import CommandFailedError, LocalError
from rl_local.layout import Layout
from rl_local.system import records
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    made = Layout(cache=tmp_path / "cache", state=tmp_path / "state")
    made.state.mkdir()
    yield made
    for name in processes.recorded(made):
        processes.stop(made, name)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def web(layout: Layout, port: int) -> Component:
    config = layout.state / "config"
    config.write_text("one")
    argv = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port))
    return Component(
        name="web",
        argv=argv,
        healthy=lambda: answers("http", port, "/"),
        files=(config,),
        ports=(port,),
        start_seconds=HUNG_SECONDS,
    )


def pid(layout: Layout) -> int:
    return processes.recorded(layout)["web"].pid


def test_a_second_ensure_starts_nothing(layout: Layout, web: Component) -> None:
    assert processes.ensure(layout, [web]) == ["web"]
    first = pid(layout)
    assert processes.ensure(layout, [web]) == []
    assert pid(layout) == first


def test_a_dead_process_is_started_again(layout: Layout, web: Component) -> None:
    processes.ensure(layout, [web])
    record = processes.recorded(layout)["web"]
    records.kill_all([record])
    assert processes.ensure(layout, [web]) == ["web"]
    until(web.healthy, what="an answer")
    assert pid(layout) != record.pid


@pytest.mark.parametrize("change", ["argv", "file"])
def test_a_process_with_changed_arguments_is_restarted(
    layout: Layout, web: Component, change: str
) -> None:
    processes.ensure(layout, [web])
    first = processes.recorded(layout)["web"]
    if change == "file":
        web.files[0].write_text("two")
    else:
        web = dataclasses.replace(web, argv=(*web.argv, "--directory", str(layout.state)))
    assert processes.ensure(layout, [web]) == ["web"]
    assert not first.alive()


def test_a_port_in_use_is_named(
    layout: Layout, web: Component, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PORT_SECONDS", 0.2)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(LocalError, match=f"TCP port {port}"):
            processes.ensure(layout, [web])


def test_a_process_that_ends_at_once_fails_with_its_log(layout: Layout, web: Component) -> None:
    argv = (sys.executable, "-c", "raise SystemExit('no such thing')")
    with pytest.raises(CommandFailedError, match="no such thing"):
        processes.ensure(layout, [dataclasses.replace(web, argv=argv)])


def test_a_log_that_cannot_be_written_is_named_in_a_line(
    layout: Layout, web: Component, capfd: pytest.CaptureFixture[str]
) -> None:
    log = processes.log_path(layout, "web")
    log.with_suffix(".log.previous").mkdir(parents=True)
    log.touch()
    with pytest.raises(CommandFailedError, match="web: could not be launched"):
        processes.ensure(layout, [web])
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"cannot run {sys.executable}: ")
    assert str(log) in line


def test_a_missing_program_fails(layout: Layout, web: Component) -> None:
    with pytest.raises(CommandFailedError, match="/no/program"):
        processes.ensure(layout, [dataclasses.replace(web, argv=("/no/program",))])


def test_a_process_that_stays_unhealthy_fails(layout: Layout, web: Component) -> None:
    silent = dataclasses.replace(web, healthy=lambda: False, start_seconds=0.5)
    with pytest.raises(CommandFailedError, match="not healthy within"):
        processes.ensure(layout, [silent])


def test_stopping_removes_the_record(layout: Layout, web: Component) -> None:
    processes.ensure(layout, [web])
    assert processes.stop(layout, "web")
    assert not processes.stop(layout, "web")
    assert processes.recorded(layout) == {}
    assert not web.healthy()
