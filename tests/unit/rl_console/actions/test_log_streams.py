from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from rl_console.actions.log_choice import Source
from rl_console.actions.log_streams import LogOptions, print_logs
from rl_console.cluster.kube import Cluster
from rl_console.errors import ClusterUnavailableError
from tests.waiting import HUNG_SECONDS

SOURCES = [Source(pod=name, container="agent") for name in ("a", "b")]


class Unread(io.TextIOWrapper):
    """The end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.FileIO(descriptor, "w", closefd=False), write_through=True)


class FakeCluster:
    """Logs of pods by name; a pod without one cannot be read."""

    def __init__(self, **logs: bytes) -> None:
        self._logs = logs

    def log_chunks(self, namespace: str, pod: str, container: str, **_: Any) -> Iterator[bytes]:
        if pod not in self._logs:
            raise ClusterUnavailableError(doing=f"reading {pod}", cause="refused")
        yield self._logs[pod]


def print_all(cluster: FakeCluster, sources: list[Source], *, follow: bool) -> None:
    print_logs(cast("Cluster", cluster), "lab", sources, LogOptions(follow=follow))


def test_lines_of_one_container_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    print_all(FakeCluster(a=b"one\ntwo\n"), SOURCES[:1], follow=False)
    assert capsys.readouterr().out == "one\ntwo\n"


@pytest.mark.parametrize("follow", [False, True])
def test_lines_of_several_containers_name_them(
    capsys: pytest.CaptureFixture[str], follow: bool
) -> None:
    print_all(FakeCluster(a=b"one\n", b=b"two\n"), SOURCES, follow=follow)
    assert sorted(capsys.readouterr().out.splitlines()) == ["[a agent] one", "[b agent] two"]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(("begun", "waiting"), ["ab", "ba"])
def test_a_container_that_cannot_be_read_does_not_end_the_others(
    capsys: pytest.CaptureFixture[str], begun: str, waiting: str, follow: bool
) -> None:
    print_all(FakeCluster(**{begun: b"one\n"}), SOURCES, follow=follow)
    printed = capsys.readouterr()
    assert printed.out == f"[{begun} agent] one\n"
    assert printed.err.startswith(f"[{waiting} agent] the Kubernetes API did not answer")


def test_the_error_of_the_only_container_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ClusterUnavailableError):
        print_all(FakeCluster(), SOURCES[:1], follow=True)
    assert capsys.readouterr().err == ""


def test_logs_that_nobody_reads_any_more_end_without_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `logs -f | head`: one log goes on, and another one is silent for ever."""
    go_on = threading.Event()

    class Endless(FakeCluster):
        def log_chunks(self, namespace: str, pod: str, container: str, **_: Any) -> Iterator[bytes]:
            while pod == "a":
                yield b"more\n"
            go_on.wait()

    reading, writing = os.pipe()
    os.close(reading)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Unread(writing))
        with pytest.raises(BrokenPipeError):
            print_all(Endless(), SOURCES, follow=True)
    os.close(writing)
    go_on.set()
    assert capsys.readouterr().err == ""


def test_an_unknown_error_of_one_log_ends_the_others() -> None:
    go_on = threading.Event()

    class Failing(FakeCluster):
        def log_chunks(self, namespace: str, pod: str, container: str, **_: Any) -> Iterator[bytes]:
            if pod == "a":
                raise ValueError("a fault")
            go_on.wait(HUNG_SECONDS)
            yield b""

    with pytest.raises(ValueError, match="a fault"):
        print_all(Failing(), SOURCES, follow=True)
    go_on.set()


def test_nothing_to_follow_is_an_error() -> None:
    with pytest.raises(ClusterUnavailableError):
        print_all(FakeCluster(), SOURCES, follow=True)
