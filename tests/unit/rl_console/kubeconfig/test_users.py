"""Whom the requests of a context name, and by which credentials."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config

from rl_console.cluster import api
from rl_console.cluster.api import Api
from rl_console.errors import (
    UsageError,
)
from rl_console.queries.cluster_source import TOKEN_HEADER, ClusterSource
from rl_console.tools import Tools
from rl_contracts.errors import RLError
from rl_contracts.queries.kinds import SummaryQuery
from tests.network.authority import Authority
from tests.unit.rl_console.kubeconfig.listening import (
    SERVER,
    Heard,
    connect,
    kubeconfig,
    use_two_files,
)

AS = {
    "token": "the-token",
    "as": "ann",
    "as-uid": "u-1",
    "as-groups": ["research", "on-call"],
    "as-user-extra": {"Reason/of": ["night", "day"]},
}


def test_each_request_names_whom_the_user_impersonates(tmp_path: Path, secure: Heard) -> None:
    cluster = connect(kubeconfig(tmp_path, secure.cluster, AS))
    for ask in (lambda: cluster.raw_jobs("lab"), lambda: cluster.pods("lab")):
        ask()
        assert secure.values("Impersonate-") == [
            ("Impersonate-User", "ann"),
            ("Impersonate-Uid", "u-1"),
            ("Impersonate-Group", "research"),
            ("Impersonate-Group", "on-call"),
            ("Impersonate-Extra-Reason%2Fof", "night"),
            ("Impersonate-Extra-Reason%2Fof", "day"),
        ]
        assert secure.values("authorization") == [("authorization", "Bearer the-token")]


def test_a_user_without_impersonation_names_nobody(tmp_path: Path, secure: Heard) -> None:
    connect(kubeconfig(tmp_path, secure.cluster, {"token": "t"})).raw_jobs("lab")
    assert secure.values("Impersonate-") == []


def test_the_operator_gets_no_token_of_one_who_impersonates_another(
    tmp_path: Path, secure: Heard
) -> None:
    """It would answer with the rights of the token's owner."""
    cluster = connect(kubeconfig(tmp_path, secure.cluster, AS))
    with pytest.raises((RLError, KeyError)):  # this server has neither a job nor stores
        ClusterSource(cluster, Tools()).ask("lab", "sums", SummaryQuery())
    assert secure.paths
    assert not [path for path in secure.paths if "/proxy/" in path]
    assert secure.values(TOKEN_HEADER) == []


@pytest.mark.parametrize("given", [{"as-uid": "u"}, {"as-groups": ["g"]}])
def test_groups_without_a_user_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    file = kubeconfig(tmp_path, {"server": "http://127.0.0.1:9"}, {"token": "t", **given})
    with pytest.raises(UsageError, match=r"without `as`\. Name the user"):
        connect(file)


# Tokens.


def test_a_token_file_may_end_with_a_line_break_and_is_read_again(
    tmp_path: Path, secure: Heard
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    cluster = connect(kubeconfig(tmp_path, secure.cluster, {"tokenFile": str(file)}))
    cluster.raw_jobs("lab")
    assert secure.values("authorization") == [("authorization", "Bearer first")]
    file.write_text("second\n")
    cluster.raw_jobs("lab")
    assert secure.values("authorization") == [("authorization", "Bearer second")]
    assert cluster.api.token == "second"


def test_a_token_file_that_is_gone_for_a_moment_leaves_the_last_token(
    tmp_path: Path, secure: Heard
) -> None:
    """As while it is replaced."""
    file = tmp_path / "token"
    file.write_text("first\n")
    cluster = connect(kubeconfig(tmp_path, secure.cluster, {"tokenFile": str(file)}))
    file.unlink()
    assert cluster.api.token == "first"
    file.write_text("second\n")
    assert cluster.api.token == "second"


@pytest.mark.parametrize(
    ("content", "token"), [("of-the-file\n", "of-the-file"), ("\n", "inline"), (None, "inline")]
)
def test_a_token_file_is_used_before_a_token_as_in_kubectl(
    content: str | None, token: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    api = connect(kubeconfig(tmp_path, SERVER, {"token": "inline", "tokenFile": "token"})).api
    assert api.token == token
    (tmp_path / "token").write_text("renewed")
    assert api.token == "renewed"


@pytest.mark.parametrize(
    "user", [{"token": "hid\nden"}, {"token": "hid…den"}, {"token": "t", "as": "hid\nden"}]
)
def test_what_no_header_may_have_is_not_quoted(
    tmp_path: Path, secure: Heard, user: dict[str, Any]
) -> None:
    cluster = connect(kubeconfig(tmp_path, secure.cluster, user))
    with pytest.raises(UsageError, match=r"listing RLJobs of lab: .* line break") as caught:
        cluster.raw_jobs("lab")
    assert "hid" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_user_that_lacks_a_key_is_named_without_its_secrets(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {"refresh-token": "hidden"}}}
    with pytest.raises(
        UsageError, match=r"Expected key id-token in \S*/kubeconfig/test/"
    ) as caught:
        connect(kubeconfig(tmp_path, SERVER, user))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n"])
@pytest.mark.parametrize("beside", [{}, {"username": "ann", "password": "p"}])
def test_an_empty_token_file_makes_nobody_anonymous(
    content: str, beside: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(UsageError, match=f"the tokenFile {tmp_path}/token is empty"):
        connect(kubeconfig(tmp_path, SERVER, {"tokenFile": "token", **beside}))


def test_files_of_a_user_are_beside_the_kubeconfig_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$KUBECONFIG may name the cluster's file and the user's."""
    names = {"client-certificate": "own.crt", "client-key": "own.key"}
    folder = use_two_files(tmp_path, names, monkeypatch)
    Authority().issue().write(folder, certificate="own.crt", key="own.key")
    settings = Api.connect(None, context=None, request_seconds=5).library.configuration
    assert settings.cert_file == str(folder / "own.crt")
    assert settings.key_file == str(folder / "own.key")


def test_a_user_without_content_has_no_credentials(tmp_path: Path) -> None:
    assert connect(kubeconfig(tmp_path, SERVER, None)).api.token == ""


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


@pytest.mark.parametrize(
    "user",
    [
        {"token": "t"},
        {"username": "ann", "password": "p"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/plugin"}},
    ],
)
def test_credentials_are_not_sent_over_plain_http(
    user: dict[str, Any], tmp_path: Path, server: Heard
) -> None:
    """As kubectl; ``kubectl proxy`` needs none."""
    cluster = connect(kubeconfig(tmp_path, server.cluster, {**user, "as": "ann"}))
    cluster.raw_jobs("lab")
    assert server.values("authorization") == []
    assert server.values("Impersonate-") == [("Impersonate-User", "ann")]
    assert cluster.api.token == ""


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
