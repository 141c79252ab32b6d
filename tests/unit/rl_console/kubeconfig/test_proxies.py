"""Through which proxy the requests of a context go."""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path

import pytest

from rl_console.errors import ClusterUnavailableError
from rl_contracts.errors import RLError
from tests.unit.rl_console.kubeconfig.recording_server import RecordingServer, connect, kubeconfig


def test_requests_go_through_the_cluster_s_proxy(tmp_path: Path, server: RecordingServer) -> None:
    cluster = {"server": "http://api.example:6443", "proxy-url": server.url}
    connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")
    assert server.paths[-1].startswith("http://api.example:6443/apis/rl-operator.io/")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_user_of_a_proxy_is_shown_to_it(
    tmp_path: Path, server: RecordingServer, scheme: str
) -> None:
    proxy = server.url.replace("http://", "http://me:p%40ss@")
    cluster = {"server": f"{scheme}://api.example:6443", "proxy-url": proxy}
    with contextlib.suppress(RLError):  # no TLS is behind this proxy
        connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")
    login = base64.b64encode(b"me:p@ss").decode()
    assert [value for _, value in server.values("proxy-authorization")] == [f"Basic {login}"]


@pytest.mark.parametrize(
    ("environ", "through_proxy"),
    [
        ({"HTTP_PROXY": "SERVER"}, True),
        ({"HTTP_PROXY": "SERVER", "NO_PROXY": ".example"}, False),
        ({"http_proxy": "SERVER", "no_proxy": "10.0.0.0/8"}, True),
        ({"HTTP_PROXY": "SERVER", "NO_PROXY": "*.example"}, False),
        ({"HTTPS_PROXY": "SERVER"}, False),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_the_environment_names_a_proxy_and_who_needs_none(
    environ: dict[str, str],
    through_proxy: bool,
    tmp_path: Path,
    server: RecordingServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value.replace("SERVER", server.url))
    cluster = connect(kubeconfig(tmp_path, {"server": "http://api.example:6443"}, {"token": "t"}))
    manager = cluster.api.library.rest_client.pool_manager
    assert (manager.proxy is not None) == through_proxy
    if through_proxy:
        cluster.raw_jobs("lab")
        assert server.paths[-1].startswith("http://api.example:6443/")


def test_the_proxy_s_settings_in_the_environment_do_not_change_proxy_url(
    tmp_path: Path, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    cluster = {"server": "http://api.example:6443", "proxy-url": server.url}
    connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")
    assert server.paths


def test_a_proxy_that_does_not_answer_is_named(tmp_path: Path) -> None:
    cluster = {"server": "https://api.example:6443", "proxy-url": "http://127.0.0.1:9"}
    with pytest.raises(ClusterUnavailableError, match=r"the proxy: .*Connection refused\. Check"):
        connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")
