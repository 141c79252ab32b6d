from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes import config

from rl_operator.kube.transport import authenticated


def kubeconfig(folder: Path, name: str, *, server: str) -> Path:
    """A file whose one cluster, user and context have one name."""
    file = folder / name
    named = {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    file.write_text(json.dumps(named))
    return file


@pytest.mark.parametrize(
    ("variable", "without", "proxy"),
    [
        ("HTTPS_PROXY", "", "http://me:pw@proxy.lab:3128"),
        ("HTTPS_PROXY", "10.0.0.0/8", None),
        ("HTTPS_PROXY", "*", None),
        ("HTTP_PROXY", "", None),
    ],
)
def test_the_api_server_is_reached_through_the_proxy_of_its_scheme_unless_no_proxy_names_it(
    variable: str,
    without: str,
    proxy: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, "http://me:pw@proxy.lab:3128")
    monkeypatch.setenv("NO_PROXY", without)
    file = kubeconfig(tmp_path, "c", server="https://10.96.0.1")
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    manager = authenticated(1).rest_client.pool_manager
    assert (str(manager.proxy) if manager.proxy else None) == proxy
    assert list(manager.connection_pool_kw.get("_proxy_headers") or {}) == (
        ["proxy-authorization"] if proxy else []
    )


def test_of_several_kubeconfigs_the_first_one_s_current_context_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [kubeconfig(tmp_path, name, server=f"https://{name}:6443") for name in ("a", "b")]
    named = ":".join(map(str, files))
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", named)
    assert authenticated(1).configuration.host == "https://a:6443"
