"""Credential plugins of a kubeconfig, as shell scripts that are run."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from rl_console.cluster.api import Api
from rl_console.errors import NotLoggedInError, UsageError
from tests.network.authority import Authority
from tests.unit.rl_console.kubeconfig.recording_server import (
    SERVER,
    RecordingServer,
    connect,
    kubeconfig,
    use_two_files,
)

VERSION = "client.authentication.k8s.io/v1"
ANSWER = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "given"}}


def script(file: Path, text: str = "", answer: object = ANSWER) -> Path:
    """Write a plugin that runs a text, and then answers."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    file.chmod(0o755)
    return file


def answering(folder: Path, *statuses: dict[str, Any]) -> Path:
    """Write a plugin whose runs answer one after another; the last answer is repeated.

    Its file ``runs`` has a line for each run.
    """
    for number, status in enumerate(statuses, start=1):
        (folder / f"answer{number}").write_text(json.dumps({**ANSWER, "status": status}))
    file, most = folder / "plugin", len(statuses)
    count = f"cd {folder}; echo >> runs; n=$(wc -l < runs); [ $n -gt {most} ] && n={most}"
    file.write_text(f"#!/bin/sh\n{count}\ncat answer$n\n")
    file.chmod(0o755)
    return file


def runs(folder: Path) -> int:
    """How often a plugin of ``answering`` ran."""
    return len((folder / "runs").read_text().splitlines())


def in_minutes(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


PAST = "2026-01-01T00:00:00Z"


def using(command: object, **settings: Any) -> dict[str, Any]:
    """A user with a plugin."""
    plugin = {"apiVersion": VERSION, "interactiveMode": "IfAvailable", "command": str(command)}
    return {"exec": {**plugin, **settings}}


def token_of(folder: Path, user: dict[str, Any], cluster: dict[str, Any] = SERVER) -> str:
    return connect(kubeconfig(folder, cluster, user)).api.token


@pytest.fixture
def terminal() -> Iterator[None]:
    """A terminal as standard input, without one as standard output."""
    kept, (main, terminal) = os.dup(0), os.openpty()
    os.dup2(terminal, 0)
    yield
    os.dup2(kept, 0)
    for each in (kept, main, terminal):
        os.close(each)


def test_what_a_plugin_asks_is_shown_where_output_is_no_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin = script(tmp_path / "plugin", "echo 'open https://sso.example and log in' >&2")
    assert token_of(tmp_path, using(plugin)) == "given"
    assert capfd.readouterr() == ("", "open https://sso.example and log in\n")


def test_a_plugin_is_found_beside_the_kubeconfig_that_names_it_and_runs_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = use_two_files(tmp_path, using("./bin/plugin"), monkeypatch)
    script(folder / "bin/plugin", f"pwd > {tmp_path}/ran-in")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert Api.connect(None, context=None, request_seconds=5).token == "given"
    assert (tmp_path / "ran-in").read_text().strip() == str(here)


@pytest.mark.parametrize("env", [[], [{"name": "PATH", "value": "/nowhere"}]])
def test_a_plugin_without_a_folder_is_found_in_our_path(
    env: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "bin/some-plugin", "PATH=/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert token_of(tmp_path, using("some-plugin", env=env)) == "given"


def test_a_plugin_is_not_looked_for_in_the_path_of_its_own_variables(tmp_path: Path) -> None:
    script(tmp_path / "bin/some-plugin")
    env = [{"name": "PATH", "value": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}]
    with pytest.raises(NotLoggedInError, match="plugin some-plugin: it cannot be run: No such"):
        token_of(tmp_path, using("some-plugin", env=env))


def test_a_variable_without_a_value_is_empty_for_a_plugin(tmp_path: Path) -> None:
    plugin = script(tmp_path / "plugin", f'echo "${{OWN-absent}}" > {tmp_path}/own')
    assert token_of(tmp_path, using(plugin, env=[{"name": "OWN"}])) == "given"
    assert (tmp_path / "own").read_text() == "\n"


@pytest.mark.parametrize(
    ("mode", "interactive"), [("Never", False), ("IfAvailable", True), ("Always", True)]
)
@pytest.mark.usefixtures("terminal")
def test_a_plugin_may_ask_where_standard_input_is_a_terminal(
    mode: str, interactive: bool, tmp_path: Path
) -> None:
    plugin = script(tmp_path / "plugin", f"[ -t 0 ] && touch {tmp_path}/asks")
    token_of(tmp_path, using(plugin, interactiveMode=mode))
    assert (tmp_path / "asks").exists() == interactive


def received(folder: Path, cluster: dict[str, Any] = SERVER, **settings: Any) -> Any:
    """What a plugin gets, and its argument and variable."""
    file = folder / "received"
    text = f'printf "%s\\n" "$KUBERNETES_EXEC_INFO" "$1" "$OWN" > {file}'
    plugin = script(folder / "plugin", text)
    own = {"args": ["get-token"], "env": [{"name": "OWN", "value": "own"}]}
    token_of(folder, using(plugin, **own, **settings), cluster)
    info, *rest = file.read_text().splitlines()
    assert rest == ["get-token", "own"]
    return json.loads(info)


def test_a_plugin_gets_its_arguments_and_the_cluster_where_it_wants_it(tmp_path: Path) -> None:
    expected = {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert received(tmp_path) == expected
    authority = Authority().pem
    (tmp_path / "ca.crt").write_text(authority)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    others = {"certificate-authority": "ca.crt", "tls-server-name": "api.example"}
    cluster = {**SERVER, **others, "extensions": [extension]}
    assert received(tmp_path, cluster, provideClusterInfo=True)["spec"]["cluster"] == {
        **SERVER,
        "tls-server-name": "api.example",
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
        "config": {"audience": "a"},
    }


def test_a_certificate_of_a_plugin_is_used(tmp_path: Path) -> None:
    Authority().issue().write(tmp_path, certificate="own.crt", key="own.key")
    texts = [(tmp_path / name).read_text() for name in ("own.crt", "own.key")]
    status = dict(zip(("clientCertificateData", "clientKeyData"), texts, strict=True))
    plugin = script(tmp_path / "plugin", answer={**ANSWER, "status": status})
    settings = connect(kubeconfig(tmp_path, SERVER, using(plugin))).api.library.configuration
    files = settings.cert_file, settings.key_file
    assert [Path(file).read_text() for file in files] == texts


@pytest.mark.parametrize("kind", ["files", "data", "password", "name", "token"])
def test_other_credentials_of_a_user_are_used_and_the_plugin_does_not_run(
    kind: str, tmp_path: Path, secure: RecordingServer
) -> None:
    """As by kubectl."""
    assert secure.authority
    issued = secure.authority.issue()
    issued.write(tmp_path, certificate="own.crt", key="own.key")
    pair = {"client-certificate": issued.certificate, "client-key": issued.key}
    beside = {
        "files": {"client-certificate": "own.crt", "client-key": "own.key"},
        "data": {f"{key}-data": in_base64(text) for key, text in pair.items()},
        "password": {"username": "ann", "password": "p"},
        "name": {"username": "ann"},
        "token": {"token": "own"},
    }[kind]
    user = {**using("/nowhere/plugin"), **beside}
    connect(kubeconfig(tmp_path, secure.cluster, user)).raw_jobs("lab")
    logins = {"password": f"Basic {in_base64('ann:p')}", "name": f"Basic {in_base64('ann:')}"}
    shown = {**logins, "token": "Bearer own"}
    headers = dict(secure.values("authorization"))
    assert headers == ({"authorization": shown[kind]} if kind in shown else {})
    assert (secure.certificates[-1] != "None") == (kind in ("files", "data"))


def test_a_password_without_a_user_name_does_not_keep_a_plugin_from_running(tmp_path: Path) -> None:
    plugin = script(tmp_path / "plugin")
    assert token_of(tmp_path, {**using(plugin), "password": "p"}) == "given"


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FAILS = "Log in again as the plugin says"


@pytest.mark.parametrize(
    ("text", "answer", "says"),
    [
        ("exit 3", ANSWER, rf"ended with exit code 3; .* standard error says why\. {FAILS}"),
        ("echo secret", ANSWER, rf"its answer is no ExecCredential in JSON\. {FAILS}"),
        ("", {}, "its answer is no ExecCredential in JSON"),
        ("", [], "its answer is no ExecCredential in JSON"),
        ("", {**ANSWER, "apiVersion": "v2"}, f"has the apiVersion v2, not {VERSION}"),
        ("", {**ANSWER, "status": {}}, "neither a token nor a certificate with its key"),
        ("", {**ANSWER, "status": None}, "neither a token nor a certificate with its key"),
        (
            "",
            {**ANSWER, "status": {"token": "secret", "clientKeyData": "secret"}},
            "neither a token nor a certificate with its key",
        ),
    ],
)
def test_a_credential_plugin_that_fails_makes_nobody_anonymous(
    text: str, answer: object, says: str, tmp_path: Path
) -> None:
    plugin = script(tmp_path / "plugin", text, answer)
    with pytest.raises(NotLoggedInError, match=f"credential plugin {plugin}: .*{says}") as caught:
        token_of(tmp_path, using(plugin))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ({"token": ["secret"]}, "the token, certificate or key of its answer is no text"),
        ({"token": 12}, "the token, certificate or key of its answer is no text"),
        ({"clientCertificateData": ["secret"], "clientKeyData": 5}, "its answer is no text"),
        *(
            ({"expirationTimestamp": each}, "the expirationTimestamp of its answer is no time")
            for each in (
                "secret",
                "",
                "2030-01-01",
                "2030-01-01T00:00:00",
                "2030-01-01T00:00Z",
                "2030-13-01T00:00:00Z",
                "20300101T000000Z",
                20300101,
                ["secret"],
            )
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("renewed", [False, True])
def test_a_part_of_an_answer_in_another_form_is_a_fault_of_the_plugin(
    part: dict[str, Any], says: str, renewed: bool, tmp_path: Path
) -> None:
    wrong = {"token": "secret", **part}
    first = {"token": "first", "expirationTimestamp": PAST}
    plugin = answering(tmp_path, *([first, wrong] if renewed else [wrong]))
    with pytest.raises(NotLoggedInError, match=f"credential plugin {plugin}: .*{says}") as caught:
        token_of(tmp_path, using(plugin))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("time", "runs_out"),
    [
        ("0001-01-01T00:00:00Z", False),
        ("0001-01-01T00:00:00+14:00", True),
        ("9999-12-31T23:59:59-12:00", False),
        ("2026-01-01T00:00:00.123456789Z", True),
    ],
)
def test_the_first_and_last_times_of_an_expiry_are_read(
    time: str, runs_out: bool, tmp_path: Path
) -> None:
    plugin = answering(tmp_path, {"token": "given", "expirationTimestamp": time})
    assert token_of(tmp_path, using(plugin)) == "given"
    assert runs(tmp_path) == 1 + runs_out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, r"it cannot be run: No such file or directory\. Install it, or correct"),
        ({"installHint": "Get it from sso.example"}, r"directory\. Get it from sso\.example"),
        ({"interactiveMode": "Always"}, r"standard input is no terminal\. Log in from a terminal"),
    ],
)
def test_a_credential_plugin_that_cannot_run_is_named_with_a_remedy(
    settings: dict[str, str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(NotLoggedInError, match=f"plugin {tmp_path}/nowhere: .*{says}"):
        token_of(tmp_path, using("./nowhere", **settings))


def test_a_credential_plugin_without_a_command_is_a_fault_of_the_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Expected key command in \S*/kubeconfig/test/user/exec"):
        token_of(tmp_path, {"exec": {"apiVersion": VERSION}})


def test_a_credential_plugin_that_works_is_used_once(
    tmp_path: Path, secure: RecordingServer
) -> None:
    count = tmp_path / "count"
    plugin = script(tmp_path / "plugin", f"echo x >> {count}")
    connect(kubeconfig(tmp_path, secure.cluster, using(plugin))).raw_jobs("lab")
    assert secure.values("authorization") == [("authorization", "Bearer given")]
    assert count.read_text() == "x\n"


def test_a_credential_plugin_is_run_again_when_its_token_runs_out(
    tmp_path: Path, secure: RecordingServer
) -> None:
    count = tmp_path / "count"
    status = {"token": "given", "expirationTimestamp": PAST}
    plugin = script(tmp_path / "plugin", f"echo x >> {count}", {**ANSWER, "status": status})
    connect(kubeconfig(tmp_path, secure.cluster, using(plugin))).raw_jobs("lab")
    assert count.read_text() == "x\nx\n"


def test_a_credential_plugin_runs_once_for_threads_whose_token_has_run_out(tmp_path: Path) -> None:
    """It may ask the user, or open a browser."""
    renewed = {"token": "second", "expirationTimestamp": in_minutes(60)}
    plugin = answering(tmp_path, {"token": "first", "expirationTimestamp": PAST}, renewed)
    api = connect(kubeconfig(tmp_path, SERVER, using(plugin))).api
    with ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(lambda _: api.token, range(4)))
    assert tokens == ["second"] * 4
    assert runs(tmp_path) == 2


def test_a_credential_plugin_is_not_run_before_its_token_runs_out(tmp_path: Path) -> None:
    """It may keep its own copy of a token until the end, and would be run for each request."""
    plugin = answering(tmp_path, {"token": "given", "expirationTimestamp": in_minutes(4)})
    api = connect(kubeconfig(tmp_path, SERVER, using(plugin))).api
    assert [api.token, api.token] == ["given"] * 2
    assert runs(tmp_path) == 1


def with_certificate(authority: Authority, **status: str) -> dict[str, str]:
    issued = authority.issue()
    return {"clientCertificateData": issued.certificate, "clientKeyData": issued.key, **status}


@pytest.mark.parametrize("token", [{}, {"token": "given"}])
def test_a_certificate_that_runs_out_is_renewed(
    token: dict[str, str], tmp_path: Path, secure: RecordingServer
) -> None:
    assert secure.authority
    first, second, third = (with_certificate(secure.authority, **token) for _ in "123")
    past = {"expirationTimestamp": PAST}
    plugin = answering(tmp_path, {**first, **past}, {**second, **past}, third)
    api = connect(kubeconfig(tmp_path, secure.cluster, using(plugin))).api
    for _ in range(3):
        api.request("GET", "/x", doing="asking")
    given = [
        f"{x509.load_pem_x509_certificate(each['clientCertificateData'].encode()).serial_number:X}"
        for each in (second, third, third)
    ]
    assert [shown.lstrip("0") for shown in secure.certificates] == given
    assert runs(tmp_path) == 3


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_is_repeated_once_with_a_new_credential_after_a_refusal(
    method: str, tmp_path: Path, secure: RecordingServer
) -> None:
    secure.refused = {"first"}
    plugin = answering(tmp_path, {"token": "first"}, {"token": "second"})
    user = {**using(plugin), "as": "ann"}
    api = connect(kubeconfig(tmp_path, secure.cluster, user)).api
    body = {"a": 1} if method == "POST" else None
    for _ in range(2):
        assert api.request(method, "/x", doing="asking", body=body) == {"items": []}
    sent = [dict(headers) for headers in secure.headers]
    tokens = [headers["authorization"] for headers in sent]
    assert tokens == ["Bearer first", "Bearer second", "Bearer second"]
    assert [headers["Impersonate-User"] for headers in sent] == ["ann"] * 3
    assert len(set(secure.bodies)) == 1
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(("second", "sent"), [("first", 1), ("second", 2)])
def test_a_second_refusal_is_an_error(
    second: str, sent: int, tmp_path: Path, secure: RecordingServer
) -> None:
    plugin = answering(tmp_path, {"token": "first"}, {"token": second})
    api = connect(kubeconfig(tmp_path, secure.cluster, using(plugin))).api
    secure.refused = {"first", "second"}
    with pytest.raises(NotLoggedInError, match="401"):
        api.request("GET", "/x", doing="asking")
    assert len(secure.paths) == sent
    assert runs(tmp_path) == 2
