"""Whom the requests of a context name, and by which credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_console.cluster.api import Api
from rl_console.errors import UsageError
from rl_console.queries.cluster_source import TOKEN_HEADER, ClusterSource
from rl_console.tools import Tools
from rl_contracts.errors import RLError
from rl_contracts.queries.kinds import SummaryQuery
from tests.network.authority import Authority
from tests.unit.rl_console.kubeconfig.recording_server import (
    SERVER,
    RecordingServer,
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


def test_each_request_names_whom_the_user_impersonates(
    tmp_path: Path, secure: RecordingServer
) -> None:
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


def test_a_user_without_impersonation_names_nobody(tmp_path: Path, secure: RecordingServer) -> None:
    connect(kubeconfig(tmp_path, secure.cluster, {"token": "t"})).raw_jobs("lab")
    assert secure.values("Impersonate-") == []


def test_the_operator_gets_no_token_of_one_who_impersonates_another(
    tmp_path: Path, secure: RecordingServer
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


def test_a_token_file_may_end_with_a_line_break_and_is_read_again(
    tmp_path: Path, secure: RecordingServer
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
    tmp_path: Path, secure: RecordingServer
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
    tmp_path: Path, secure: RecordingServer, user: dict[str, Any]
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
    "user",
    [
        {"token": "t"},
        {"username": "ann", "password": "p"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/plugin"}},
    ],
)
def test_credentials_are_not_sent_over_plain_http(
    user: dict[str, Any], tmp_path: Path, server: RecordingServer
) -> None:
    """As kubectl; ``kubectl proxy`` needs none."""
    cluster = connect(kubeconfig(tmp_path, server.cluster, {**user, "as": "ann"}))
    cluster.raw_jobs("lab")
    assert server.values("authorization") == []
    assert server.values("Impersonate-") == [("Impersonate-User", "ann")]
    assert cluster.api.token == ""
