from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from rl_console.actions.log_choice import Source
from rl_console.actions.log_streams import LogOptions, print_logs
from rl_console.errors import ClusterUnavailableError
from rl_console.kube import Cluster

SOURCES = [Source(pod=name, container="agent") for name in ("a", "b")]


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


def test_a_container_that_cannot_be_read_does_not_end_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_all(FakeCluster(a=b"one\n"), SOURCES, follow=True)
    printed = capsys.readouterr()
    assert printed.out == "[a agent] one\n"
    assert printed.err.startswith("[b agent] the Kubernetes API did not answer")


def test_nothing_to_follow_is_an_error() -> None:
    with pytest.raises(ClusterUnavailableError):
        print_all(FakeCluster(), SOURCES, follow=True)
