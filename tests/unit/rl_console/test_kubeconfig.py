"""What a context of a kubeconfig leads to, with a server that keeps the headers of requests."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import ssl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config import incluster_config

from rl_console import app
from rl_console.cluster import api
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import (
    UNREACHABLE,
    ClusterUnavailableError,
    UsageError,
)
from rl_console.queries.cluster_source import TOKEN_HEADER, ClusterSource
from rl_console.tools import Tools
from rl_contracts.errors import RLError
from rl_contracts.queries.kinds import SummaryQuery
from tests.network.authority import Authority

AS = {
    "token": "the-token",
    "as": "ann",
    "as-uid": "u-1",
    "as-groups": ["research", "on-call"],
    "as-user-extra": {"Reason/of": ["night", "day"]},
}


class Heard(http.server.ThreadingHTTPServer):
    """Keeps what requests have, and answers each with an empty list, or 401 for some tokens."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths, self.headers = list[str](), list[list[tuple[str, str]]]()
        self.bodies, self.certificates = list[bytes](), list[str]()
        self.authority: Authority | None = None
        self.refused = set[str]()

    def use_tls(self, folder: Path) -> None:
        self.authority = Authority()
        context = self.authority.context(folder)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.authority.pem)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def url(self) -> str:
        return f"{'https' if self.authority else 'http'}://127.0.0.1:{self.server_port}"

    @property
    def cluster(self) -> dict[str, Any]:
        """As a kubeconfig has it."""
        if self.authority is None:
            return {"server": self.url}
        authority = base64.b64encode(self.authority.pem.encode()).decode()
        return {"server": self.url, "certificate-authority-data": authority}

    def values(self, beginning: str) -> list[tuple[str, str]]:
        """Of headers of the last request."""
        return [each for each in self.headers[-1] if each[0].startswith(beginning)]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Heard

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.headers.append(self.headers.items())
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        if isinstance(self.connection, ssl.SSLSocket):
            shown = self.connection.getpeercert() or {}
            self.server.certificates.append(str(shown.get("serialNumber")))
        body = b'{"items": []}'
        is_refused = (self.headers["Authorization"] or "").removeprefix(
            "Bearer "
        ) in self.server.refused
        self.send_response(401 if is_refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Heard]:
    with Heard() as started:
        yield from serving(started)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Heard]:
    """By TLS: a user's credentials are sent to no other server."""
    with Heard() as started:
        started.use_tls(tmp_path)
        yield from serving(started)


def serving(started: Heard) -> Iterator[Heard]:
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield started
    started.shutdown()
    thread.join()


def kubeconfig(
    folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None, **context: Any
) -> Path:
    """A file with one context."""
    file = folder / "kubeconfig"
    chosen = {"name": "test", "context": {"cluster": "test", "user": "test", **context}}
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [chosen],
        "current-context": "test",
    }
    file.write_text(json.dumps(written))
    return file


def connect(file: Path) -> Cluster:
    return Cluster(Api.connect(file, context=None, request_seconds=5))


# Impersonation.


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


def use_two_files(folder: Path, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cluster's kubeconfig and a user's; returns the folder of the user's."""
    folders = [folder / "cluster", folder / "user"]
    for each in folders:
        each.mkdir()
    files = [kubeconfig(each, SERVER, user) for each in folders]
    written = json.loads(files[0].read_text())
    files[0].write_text(json.dumps({**written, "users": []}))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    return folders[1]


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


# Proxies.


def test_requests_go_through_the_cluster_s_proxy(tmp_path: Path, server: Heard) -> None:
    cluster = {"server": "http://api.example:6443", "proxy-url": server.url}
    connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")
    assert server.paths[-1].startswith("http://api.example:6443/apis/rl-operator.io/")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_user_of_a_proxy_is_shown_to_it(tmp_path: Path, server: Heard, scheme: str) -> None:
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
    server: Heard,
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
    tmp_path: Path, server: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    cluster = {"server": "http://api.example:6443", "proxy-url": server.url}
    connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")
    assert server.paths


def test_a_proxy_that_does_not_answer_is_named(tmp_path: Path) -> None:
    cluster = {"server": "https://api.example:6443", "proxy-url": "http://127.0.0.1:9"}
    with pytest.raises(ClusterUnavailableError, match=r"the proxy: .*Connection refused\. Check"):
        connect(kubeconfig(tmp_path, cluster, {"token": "t"})).raw_jobs("lab")


# Files that cannot be used.

SERVER = {"server": "https://127.0.0.1:9"}
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
