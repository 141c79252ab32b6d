"""A retry that does not come to its end says how to go on."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from rl_console.actions import retry
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import (
    NOT_ALLOWED,
    NOT_FOUND,
    REFUSED,
    ClusterUnavailableError,
    ConsoleError,
    NotAllowedError,
    NotLoggedInError,
    RequestRefusedError,
    TimeOverError,
)
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server

METADATA = {"name": "sums", "namespace": "lab", "uid": "u"}
MANIFEST = {"metadata": {"name": "sums", "namespace": "lab"}, "spec": {"runId": "run-1"}}
LATER = r"Once the old job is gone, run `kubectl create -f again\.yaml -n lab` to continue its run"
DONE, GOING = Answer(200, {}), Answer(200, {"metadata": METADATA})
GONE = Answer(404, {"details": {"name": "sums"}})
DOWN = Answer(503, {"message": "etcd has no leader"})


def replace(server: Server, sleep: Any = lambda _: None) -> None:
    cluster, saved = Cluster(Api(server.library)), Path("again.yaml")
    retry.replace_job(cluster, {"metadata": METADATA}, MANIFEST, saved=saved, sleep=sleep)


def test_ctrl_c_while_the_job_goes_names_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(Server(DONE, GOING), interrupt)
    assert "The job is being deleted. Once the old job is gone, run" in capsys.readouterr().err


def test_an_api_server_that_is_down_for_a_moment_is_asked_again() -> None:
    server = Server(DONE, DOWN, GOING, DOWN, GONE, DONE)
    replace(server)
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("answers", "kind", "says"),
    [
        ([DONE, GOING], TimeOverError, "RLJob lab/sums is not gone after -1 s"),
        ([DONE, DOWN], ClusterUnavailableError, "etcd has no leader"),
        ([DONE, GONE, DOWN], ClusterUnavailableError, "etcd has no leader"),
    ],
    ids=["time over", "down while it goes", "down at the creation"],
)
def test_what_is_left_to_do_is_said(
    answers: list[Answer], kind: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "GONE_SECONDS", -1.0)
    with pytest.raises(kind, match=rf"{says}\. {LATER}"):
        replace(Server(*answers))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, NotLoggedInError), (403, NotAllowedError), (400, RequestRefusedError)],
)
def test_a_refusal_while_the_job_goes_says_how_to_go_on(
    status: int, kind: type[RequestRefusedError]
) -> None:
    refused = Answer(status, {"message": "no more"})
    with pytest.raises(
        RequestRefusedError, match=rf"lab/sums is gone: .*no more.*{LATER}"
    ) as raised:
        replace(Server(DONE, GOING, refused))
    assert raised.value.exit_code == kind.exit_code


UNKNOWN = (
    r"t is not known whether the job was deleted: if `kubectl rl status sums -n lab` still shows "
    r"it, remove again\.yaml and run `kubectl rl retry sums -n lab` again; else run "
    r"`kubectl create -f again"
)


def test_a_deletion_whose_fate_is_unknown_says_what_to_look_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ClusterUnavailableError, match=rf"etcd has no leader\. I{UNKNOWN}"):
        replace(Server(DOWN))
    with pytest.raises(KeyboardInterrupt):
        replace(Interrupted(DONE))
    assert re.search(UNKNOWN, capsys.readouterr().err)


class Interrupted(Server):
    """Ctrl-C comes before the answer."""

    def request(self, method: str, url: str, **given: Any) -> Answer:
        raise KeyboardInterrupt


def test_a_deletion_that_was_not_sent_leaves_no_manifest(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    cluster = Cluster(Api.of_token(f"http://127.0.0.1:{port}", "t", authorities=tmp_path))
    saved = tmp_path / "again.yaml"
    saved.touch()
    with pytest.raises(ClusterUnavailableError, match=r"Connection refused\. Check that") as raised:
        retry.replace_job(cluster, {"metadata": METADATA}, MANIFEST, saved=saved)
    assert "create" not in str(raised.value)
    assert not saved.exists()


def test_a_job_that_somebody_else_deleted_is_created() -> None:
    server = Server(GONE, GONE, DONE)
    replace(server)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(403, {"message": "you cannot create"}), NOT_ALLOWED),
        (Answer(404, {"message": "no such namespace"}), NOT_FOUND),
        (Answer(422, {"message": "spec is invalid"}), REFUSED),
    ],
)
def test_a_creation_that_is_refused_keeps_its_exit_code_and_names_the_manifest(
    answer: Answer, code: int
) -> None:
    says = r"The old job is deleted: run `kubectl create -f again\.yaml -n lab` to continue its run"
    with pytest.raises(ConsoleError, match=says) as raised:
        replace(Server(DONE, GONE, answer))
    assert raised.value.exit_code == code


TAKEN = Answer(409, {"message": "sums already exists", "reason": "AlreadyExists"})
FULL = Answer(403, {"message": "sums is forbidden: exceeded quota: jobs", "reason": "Forbidden"})


@pytest.mark.parametrize("answer", [DONE, TAKEN, FULL])
def test_what_ends_with_the_old_job_does_not_keep_it_from_being_replaced(answer: Answer) -> None:
    server = Server(answer)
    retry.require_creatable(Cluster(Api(server.library)), MANIFEST)
    assert server.queries == [[("dryRun", "All")]]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(403, {"message": "you cannot create"}), NotAllowedError),
        (Answer(422, {"message": "spec is invalid"}), RequestRefusedError),
        (DOWN, ClusterUnavailableError),
    ],
)
def test_a_job_that_cannot_be_created_is_not_to_be_deleted(
    answer: Answer, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="lab/sums can be created again, before it is deleted"):
        retry.require_creatable(Cluster(Api(Server(answer).library)), MANIFEST)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("AlreadyExists", r"applies manifests from Git, .* Commit `runId: run-1`"),
        ("Forbidden", r"a queue already exists\. The old job is deleted: run `kubectl create"),
    ],
)
def test_a_job_that_exists_again_is_told_from_other_refusals(reason: str, says: str) -> None:
    refused = Answer(409, {"message": "a queue already exists", "reason": reason})
    with pytest.raises(RequestRefusedError, match=says):
        replace(Server(DONE, GONE, refused))
