"""What is said of a kubeconfig that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rl_console import app
from rl_console.errors import (
    UNREACHABLE,
    UsageError,
)
from tests.unit.rl_console.kubeconfig.listening import SERVER, connect, kubeconfig

HERE = {"name": "c", "context": {"cluster": "c"}}


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
