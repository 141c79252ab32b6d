"""Which kubeconfig files are read, and what is said of one that cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config

from rl_console import app
from rl_console.cluster import api
from rl_console.cluster.api import Api
from rl_console.errors import UNREACHABLE, UsageError
from tests.network.authority import Authority
from tests.unit.rl_console.kubeconfig.recording_server import SERVER, connect, kubeconfig

HERE = {"name": "c", "context": {"cluster": "c"}}


@pytest.mark.parametrize(
    ("named", "context", "chosen"),
    [(("a", "b"), None, "a"), (("", "b"), None, "b"), ((None, "b"), None, "b"), ("ab", "b", "b")],
)
def test_the_first_file_that_names_a_current_context_decides_as_in_kubectl(
    named: Sequence[str | None],
    context: str | None,
    chosen: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a job would be deleted in another cluster than kubectl shows."""
    files = [tmp_path / name for name in "ab"]
    for file, current in zip(files, named, strict=True):
        name = file.name
        written = {
            "current-context": current,
            "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"}}],
            "users": [{"name": name, "user": {"token": name}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }
        file.write_text(json.dumps(written))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    api = Api.connect(None, context=context, request_seconds=5)
    assert (api.server, api.token) == (f"https://{chosen}:6443", chosen)


def test_an_empty_file_among_several_is_ignored_as_in_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    file = kubeconfig(tmp_path, SERVER, {"token": "t"})
    for files in ([empty, file], [file, empty]):
        monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
        assert Api.connect(None, context=None, request_seconds=5).token == "t"


def test_a_file_that_is_named_may_have_a_colon(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    assert connect(kubeconfig(folder, SERVER, {"token": "t"})).api.token == "t"


def test_a_kubeconfig_may_come_through_a_pipe(tmp_path: Path) -> None:
    """As by `--kubeconfig <(…)`: it can be read once."""
    read, write = os.pipe()
    os.write(write, kubeconfig(tmp_path, SERVER, {"token": "t"}).read_bytes())
    os.close(write)
    assert connect(Path(f"/dev/fd/{read}")).api.token == "t"
    os.close(read)


EMPTY = "{apiVersion: v1, kind: Config, clusters: [], contexts: [], users: [], preferences: {}"


@pytest.mark.parametrize(
    ("content", "in_pod"),
    [
        (None, True),
        ("", True),
        ("{}", True),
        ("# nothing\n", True),
        (f"{EMPTY}, current-context: ''}}", True),
        ("{clusters: null, contexts: null}", True),
        ("clusters: [", False),
        (f"{EMPTY}, current-context: gone}}", False),
    ],
)
def test_in_a_pod_a_kubeconfig_without_content_counts_as_none(
    content: str | None, in_pod: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, file = tmp_path / "token", tmp_path / "config"
    token.write_text("of-the-pod")
    authorities = tmp_path / "ca.crt"
    authorities.write_text(Authority().pem)
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "9")
    monkeypatch.setattr(api, "POD_TOKEN", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authorities))
    if in_pod:
        assert Api.connect(None, context=None, request_seconds=5).token == "of-the-pod"
    else:
        with pytest.raises(UsageError, match=r"it is not YAML|with name gone"):
            Api.connect(None, context=None, request_seconds=5)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("clusters: [\n", "it is not YAML: while parsing"),
        ("- 1\n", "a part of it has another form"),
        ("", "it is empty"),
        ("# nothing\n", "it is empty"),
        (json.dumps({"current-context": "", "contexts": []}), "it names no current context"),
        (json.dumps({"current-context": "c", "contexts": [HERE], "clusters": []}), "name c in"),
        (
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": SERVER}],
                    "users": None,
                }
            ),
            "Expected object with name u in",
        ),
    ],
)
def test_a_damaged_kubeconfig_is_named(text: str, cause: str, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        connect(file)
    assert str(caught.value).startswith(f"the kubeconfig {file} cannot be used: ")
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "user", "cause"),
    [
        (SERVER, {"tokenFile": "/nowhere/token"}, "No such file or directory: '/nowhere/token'"),
        ({**SERVER, "proxy-url": "127.0.0.1:9"}, {"token": "t"}, "URL must begin with http"),
        ({**SERVER, "proxy-url": "socks5://h:9"}, {"token": "t"}, "and SOCKS is not supported"),
        ({**SERVER, "certificate-authority-data": "x"}, {"token": "t"}, "another form"),
    ],
)
def test_what_a_kubeconfig_names_must_be_of_use(
    cluster: dict[str, Any], user: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=cause):
        connect(kubeconfig(tmp_path, cluster, user))


def test_an_empty_value_is_as_an_absent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kubeconfig(tmp_path, {**SERVER, "proxy-url": ""}, {"token": "t", "as": ""}, namespace="")
    assert connect(file).default_namespace == "default"
    (tmp_path / ".kube").mkdir()
    file.rename(tmp_path / ".kube/config")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "")
    assert app.run(["--kubeconfig", "", "--context", "", "list"]) == UNREACHABLE
    assert "listing RLJobs of default: https://127.0.0.1:9" in capsys.readouterr().err
