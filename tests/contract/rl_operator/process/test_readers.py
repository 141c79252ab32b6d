"""The operator reads no tenant's Secret: a reader does, and nobody else may ask it."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path

import pytest

from rl_contracts.reader import PORT, RUNS, RunsAnswer, RunsRequest
from rl_contracts.reader import token as token_of
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiRefusedError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.kinds import Kind
from rl_operator.render import reader as rendered
from rl_operator.stores import reader_key
from rl_operator.stores.reader_pods import ReaderDownError
from rl_operator.stores.readers import IDLE_SECONDS, Readers
from tests.contract.rl_operator.processes import ACCOUNT, SYSTEM, Starter, bring_up
from tests.contract.rl_operator.reconciling import IMAGES
from tests.contract.rl_operator.world import World
from tests.kube.apiserver import ApiServer
from tests.kube.kubelet import ReaderKubelet
from tests.waiting import HUNG_SECONDS, until

SECRET = "rl-operator-stores"
USER = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def readers_of(world: World, clock: Clock) -> Readers:
    return Readers(world.cluster, IMAGES, system=world.namespace, clock=clock, pod_read_seconds=0.0)


def answer_of(world: World, readers: Readers, secret: str = SECRET) -> RunsAnswer:
    """The first answer of a reader; the kubelet takes a moment to start it."""
    answers: list[RunsAnswer] = []

    def ask() -> bool:
        try:
            request = RunsRequest(runs=("r",))
            answers.append(readers.ask((world.namespace, secret), RUNS, request, RunsAnswer))
        except ReaderDownError:
            return False
        return True

    until(ask, what="the reader's answer")
    return answers[0]


def pods(world: World) -> list[Manifest]:
    return world.cluster.select(kinds.POD, world.namespace, labels=rendered.selector())


def may(apiserver: ApiServer, verb: str, resource: str, namespace: str) -> bool:
    answer = apiserver.kubectl(
        "auth", "can-i", verb, resource, "-n", namespace, "--as", USER, check=False
    )
    return answer.stdout.strip() == "yes"


def test_operators_account_may_read_no_secret_but_its_key(world: World, rights: Path) -> None:
    world.make_secret()
    server = world.apiserver
    for namespace in (world.namespace, SYSTEM, "kube-system"):
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
            for name in ("secrets", f"secrets/{SECRET}"):
                assert not may(server, verb, name, namespace), (verb, name, namespace)
    for verb in ("get", "create", "patch"):
        assert may(server, verb, f"secrets/{reader_key.NAME}", SYSTEM)
    assert not may(server, "get", f"secrets/{reader_key.NAME}", world.namespace)


def test_operator_with_the_charts_rights_trains_by_its_reader(world: World, start: Starter) -> None:
    operator = start("one")
    bring_up(world)
    (pod,) = pods(world)
    key = world.cluster.get(kinds.SECRET, SYSTEM, reader_key.NAME)
    assert key is not None
    assert world.cluster.get(kinds.NETWORK_POLICY, world.namespace, rendered.PREFIX)
    shown = json.dumps(pod) + json.dumps(operator.lines())
    for secret in (key["data"]["key"], world.settings.s3_secret_key.get_secret_value()):
        assert secret not in shown
    assert operator.complaints() == []


def test_reader_refuses_a_wrong_token_and_what_is_too_large(world: World) -> None:
    world.make_secret()
    answer_of(world, readers_of(world, Clock()))
    (pod,) = pods(world)
    address = pod["status"]["podIP"]
    known = pod["spec"]["containers"][0]["env"][0]["value"]

    def status(path: str, token: str, length: int = 2, method: str = "POST") -> int:
        connection = http.client.HTTPConnection(address, PORT, timeout=HUNG_SECONDS)
        headers = {"Authorization": f"Bearer {token}", "Content-Length": str(length)}
        connection.request(method, path, b"{}" if length == 2 else None, headers)
        try:
            return connection.getresponse().status
        finally:
            connection.close()

    for token in ("", "guess", known):
        assert status(RUNS, token) == 401
    assert status("/healthz", "", method="GET") == 200
    readers = readers_of(world, Clock())
    key = reader_key.read_or_create(world.cluster, world.namespace)
    token = token_of(key, world.namespace, rendered.name(SECRET))
    assert status(RUNS, token) == 400
    assert status("/v1/other", token) == 404
    assert status(RUNS, token, length=1 << 30) == 413
    assert answer_of(world, readers).store.status == "True"


def test_reader_that_nobody_asks_is_deleted(world: World) -> None:
    world.make_secret()
    clock = Clock()
    readers = readers_of(world, clock)
    answer_of(world, readers)
    clock.now += IDLE_SECONDS - 1
    readers.sweep()
    assert len(pods(world)) == 1
    another = readers_of(world, clock)  # the next process knows it by its labels
    another.adopt((world.namespace,))
    clock.now += IDLE_SECONDS + 1
    another.sweep()
    assert pods(world) == []
    assert world.cluster.get(kinds.NETWORK_POLICY, world.namespace, rendered.PREFIX) is None


def test_sweep_leaves_the_pod_of_another_and_goes_on_after_a_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets, clock = ("theirs", "first", "second"), Clock()
    theirs = rendered.name("theirs")
    world.apply("v1", "Pod", theirs, spec={"containers": [{"name": "x", "image": "x"}]})
    readers = readers_of(world, clock)
    for secret in secrets:
        with pytest.raises(ReaderDownError):
            readers.ask((world.namespace, secret), RUNS, RunsRequest(runs=()), RunsAnswer)
    delete = world.cluster.delete

    def refuse_first(kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        if name == rendered.name("first"):
            raise ApiRefusedError(doing="DELETE", status=403, message="a policy")
        delete(kind, namespace, name, uid=uid)

    clock.now += IDLE_SECONDS + 1.0
    with monkeypatch.context() as refused:
        refused.setattr(world.cluster, "delete", refuse_first)
        with pytest.raises(ApiRefusedError):
            readers.sweep()
    assert [pod["metadata"]["name"] for pod in pods(world)] == [rendered.name("first")]
    readers.sweep()
    assert pods(world) == []
    assert world.cluster.get(kinds.POD, world.namespace, theirs) is not None


def test_reader_of_another_image_is_replaced(world: World) -> None:
    world.make_secret()
    answer_of(world, readers_of(world, Clock()))
    (before,) = pods(world)
    images = IMAGES.__class__(
        operator="o:2", trainer="t:1", sampler="s:1", engine="e:1", pull_policy="IfNotPresent"
    )
    newer = Readers(
        world.cluster, images, system=world.namespace, clock=Clock(), pod_read_seconds=0.0
    )
    answer_of(world, newer)
    (after,) = pods(world)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["containers"][0]["image"] == "o:2"


def test_reader_that_has_ended_by_itself_is_replaced(world: World) -> None:
    world.make_secret()
    answer_of(world, readers_of(world, Clock()))
    (before,) = pods(world)
    assert before["spec"]["restartPolicy"] == "OnFailure"
    ended = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}
    world.set_status("pod", before["metadata"]["name"], ended)
    answer_of(world, readers_of(world, Clock()))  # of an operator that has started again
    (after,) = pods(world)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_job_says_why_its_reader_cannot_be_created(world: World) -> None:
    world.make_secret()
    world.upload_inputs()
    limits = [{"type": "Container", "max": {"memory": "100Mi"}}]
    world.apply("v1", "LimitRange", "small", spec={"limits": limits})
    pod = rendered.pod(world.namespace, "probe", IMAGES, token_sha256="0")

    def is_limited() -> bool:
        dry = ("apply", "--dry-run=server", "-f", "-")
        return bool(world.apiserver.kubectl(*dry, stdin=json.dumps(pod), check=False).returncode)

    until(is_limited, what="the limit to be known")
    job = world.make_job()
    world.settle(job)
    stalled = world.condition(job, "Stalled")
    assert stalled["reason"] == "ReaderNotRunning"
    assert "maximum memory usage per Container is 100Mi" in stalled["message"]
    assert rendered.name(SECRET) in stalled["message"]


def test_secret_of_another_name_has_a_reader_of_its_own(world: World) -> None:
    world.make_secret()
    readers = readers_of(world, Clock())
    assert answer_of(world, readers).refusal is None
    missing = answer_of(world, readers, "another")
    assert missing.refusal is not None
    assert missing.refusal.reason == "StoresSecretMissing"
    assert len(pods(world)) == 2


def test_no_answer_shows_the_content_of_the_secret(world: World) -> None:
    world.make_secret(mongoUri="mongodb://rl:hunter2-secret@127.0.0.1:1/?authSource=hunter2-secret")
    answer = answer_of(world, readers_of(world, Clock()))
    assert answer.store.status == "False"
    text = answer.model_dump_json()
    for value in ("hunter2-secret", world.settings.s3_secret_key.get_secret_value()):
        assert value not in text


def test_reader_as_a_process_serves(
    world: World, kubelet: ReaderKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet, "processes", True)
    world.make_secret()
    assert answer_of(world, readers_of(world, Clock())).store.status == "True"
    (running,) = [reader for reader in kubelet.running.values() if reader.process is not None]
    assert isinstance(running.process, subprocess.Popen)
    assert running.process.poll() is None


def test_restricted_namespace_admits_a_reader(world: World) -> None:
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    world.apiserver.kubectl("label", "namespace", world.namespace, enforced)
    world.make_secret()
    assert answer_of(world, readers_of(world, Clock())).store.status == "True"
