"""Models outside of training: which one is meant, its pods, and how their files arrive."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rl_console.actions.models import waiting
from rl_console.actions.models.choice import Choice
from rl_console.actions.models.endpoint import API_KEY_VOLUME, Endpoint
from rl_console.actions.models.fetching import fetch
from rl_console.actions.models.pod_state import PodState
from rl_console.actions.models.serving import described, pod_doing
from rl_console.actions.models.working import Working, job_manifest
from rl_console.api import Api
from rl_console.commands.models import serve
from rl_console.errors import NotFoundError, RequestRefusedError, TimeOverError, UsageError
from rl_console.invocation import Invocation
from rl_console.kube import Cluster
from rl_contracts import env
from rl_contracts.env import SamplerEnv
from rl_contracts.handout import HandedFile
from tests.manifests import a_job
from tests.unit.rl_console.test_cluster_source import Answer, Server

IMAGES = {"sampler": "s:1", "engine": "e:1", "pullPolicy": "Never", "pullSecrets": ["pull"]}
STATUS = {"runId": "run1", "images": IMAGES, "weights": {"version": 9}}
FINAL = "s3://b/runs/run1/final/1/"


def raw(**status: Any) -> dict[str, Any]:
    manifest = a_job("sums", namespace="lab")
    manifest["metadata"] |= {"uid": "u1", "generation": 1}
    return {**manifest, "status": {**STATUS, **status}}


def choice(version: int | None = None, **status: Any) -> Choice:
    cluster = Cluster(Api(Server(Answer(200, raw(**status))).library))
    return Choice.of(cluster, "lab", "sums", version)


@pytest.mark.parametrize(
    ("version", "status", "arguments"),
    [
        (None, {}, ["--version", "9"]),
        (4, {"finalModel": FINAL}, ["--version", "4"]),
        (None, {"finalModel": FINAL}, ["--uri", FINAL]),
    ],
)
def test_the_final_model_comes_before_the_newest_version(
    version: int | None, status: dict[str, Any], arguments: list[str]
) -> None:
    assert choice(version, **status).arguments == arguments


def test_a_job_without_a_model_is_named() -> None:
    with pytest.raises(NotFoundError, match="has published no version yet"):
        choice(weights={"version": 0})


def test_images_come_from_the_user_the_manifest_or_the_installation() -> None:
    given = choice()
    assert given.images().sampler == "s:1"
    assert given.images(sampler="mine:2").sampler == "mine:2"
    with pytest.raises(UsageError, match=r"names no sampler image.*Name one with --image"):
        choice(images=None).images()
    with pytest.raises(UsageError, match=r"RLJob sums has no group 'judge'\. It has main"):
        given.images(group="judge")


def test_the_pod_has_the_stores_by_name_alone_and_the_job_as_its_owner() -> None:
    given = choice()
    manifest = job_manifest(
        given, given.images(), verb="promote", arguments=["promote"], seconds=60, retries=2
    )
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert manifest["spec"]["activeDeadlineSeconds"] == 60
    pod = manifest["spec"]["template"]["spec"]
    assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == [
        "rl-operator-stores"
    ]
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    (container,) = pod["containers"]
    assert container["args"] == ["promote", "--version", "9"]
    assert (container["image"], container["imagePullPolicy"]) == ("s:1", "Never")
    values = {each["name"]: each.get("value", "x") for each in container["env"]}
    assert SamplerEnv.parse(values).run == "run1"
    assert values[env.STORES_FOLDER] in {each["mountPath"] for each in container["volumeMounts"]}


def pod(phase: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": "sums-x", "creationTimestamp": "2026-11-26T00:00:00Z"}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


def ended(message: str) -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"terminated": {"message": message}}}]}


UNSCHEDULED = {
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes have a GPU"}]
}
PULLING = {
    "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no s:1"}}}]
}


@pytest.mark.parametrize(
    ("given", "doing", "message"),
    [
        (pod("Pending"), "pod sums-x: Pending", ""),
        (pod("Pending", **UNSCHEDULED), "pod sums-x: not scheduled: 0/3 nodes have a GPU", ""),
        (pod("Pending", **PULLING), "pod sums-x: ErrImagePull no s:1", ""),
        (pod("Failed", **ended("no version 7")), "pod sums-x: Failed", "no version 7"),
        (pod("Failed", message="deadline"), "pod sums-x: Failed", "deadline"),
    ],
)
def test_what_a_pod_does_is_said(given: dict[str, Any], doing: str, message: str) -> None:
    state = PodState.of(given)
    assert (state.doing, state.message) == (doing, message)


def work(*answers: Answer, seconds: float = 60.0) -> tuple[Working, list[str]]:
    said: list[str] = []
    made = Working(
        cluster=Cluster(Api(Server(*answers).library)),
        namespace="lab",
        name="j",
        waits=waiting.Wait(seconds=seconds, say=said.append),
    )
    return made, said


def pods(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items)})


OVER = Answer(200, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}})


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


def test_each_state_is_said_once() -> None:
    running = pod("Running")
    made, said = work(pods(), pods(), pods(pod("Pending")), pods(running), pods(running))
    assert made.wait(lambda state: state.phase == "Running").name == "sums-x"
    assert said == ["waiting for a pod", "pod sums-x: Pending", "pod sums-x: Running"]


def test_a_program_that_fails_says_why_once_nothing_replaces_it() -> None:
    failed = pods(pod("Failed", **ended("version 7 is deleted")))
    made, _ = work(failed, Answer(200, {"status": {}}), failed, OVER)
    with pytest.raises(RequestRefusedError, match="version 7 is deleted"):
        made.wait(lambda state: state.phase == "Succeeded")


def test_a_program_that_ends_too_early_is_no_wait() -> None:
    made, _ = work(pods(pod("Succeeded", **ended("nobody asks any more"))))
    with pytest.raises(RequestRefusedError, match="nobody asks any more"):
        made.wait(lambda state: state.phase == "Running")


def test_the_deadline_names_what_is_waited_for() -> None:
    made, _ = work(pods(pod("Pending", **UNSCHEDULED)), seconds=-1)
    with pytest.raises(TimeOverError, match=r"0/3 nodes have a GPU\. Give it longer"):
        made.wait(lambda state: state.phase == "Running")


# Files.

CONTENT = b"0123456789"
FILE = HandedFile(
    name="weights", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
)


@contextmanager
def handing_out(content: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.end_headers()
            self.wfile.write(content[first:])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("before", [b"", b"0123", CONTENT, CONTENT + b"more"])
def test_a_file_is_continued_and_compared(tmp_path: Path, before: bytes) -> None:
    if before:
        (tmp_path / "weights.partial").write_bytes(before)
    with handing_out(CONTENT) as url:
        fetch(url, FILE, tmp_path, say=lambda text: None)
        fetch(url, FILE, tmp_path, say=lambda text: None)  # nothing more to do
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("weights", CONTENT)]


def test_a_file_of_another_content_is_never_kept(tmp_path: Path) -> None:
    with handing_out(b"012345678X") as url, pytest.raises(RequestRefusedError, match="digest"):
        fetch(url, FILE, tmp_path, say=lambda text: None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_with_other_content_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"mine")
    with handing_out(CONTENT) as url, pytest.raises(UsageError, match="Choose another folder"):
        fetch(url, FILE, tmp_path, say=lambda text: None)
    assert (tmp_path / "weights").read_bytes() == b"mine"


def test_a_full_disk_ends_the_download(tmp_path: Path) -> None:
    (tmp_path / "weights.partial").symlink_to("/dev/full")
    with (
        handing_out(CONTENT) as url,
        pytest.raises(UsageError, match=r"weights\.partial cannot be written: No space left"),
    ):
        fetch(url, FILE, tmp_path, say=lambda text: None)


# Endpoints.


def endpoint(version: int | None = None, **options: Any) -> Endpoint:
    given = choice(version, finalModel=FINAL)
    return Endpoint(choice=given, images=given.images(), name="sums-serve", **options)


def by_kind(endpoint: Endpoint) -> dict[str, dict[str, Any]]:
    return {manifest["kind"]: manifest for manifest in endpoint.manifests()}


def test_an_endpoint_has_one_front_and_an_engine_on_loopback() -> None:
    made = by_kind(endpoint(api_key_secret="keys", replicas=2))
    pod = made["Deployment"]["spec"]["template"]["spec"]
    containers = {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}
    engine = containers["engine"]["args"]
    assert engine[engine.index("--host") + 1] == "127.0.0.1"
    assert engine[engine.index("--dtype") + 1] == "float32"
    assert containers["stage"]["args"] == ["stage", "--uri", FINAL]
    front = containers["endpoint"]["args"]
    assert front == ["endpoint", "--name", "final", "--key-file", "/etc/rl/api-key/api-key"]
    mounted = {
        name: {each["name"] for each in container["volumeMounts"]}
        for name, container in containers.items()
    }
    assert {name for name in mounted if "stores" in mounted[name]} == {"stage"}
    assert {name for name in mounted if "rl-endpoint-key" in mounted[name]} == {"endpoint"}
    named = {volume["name"] for volume in pod["volumes"]}
    assert set().union(*mounted.values()) <= named
    assert made["Deployment"]["spec"]["replicas"] == 2


def test_the_service_and_the_policy_select_the_endpoints_pods_alone() -> None:
    made = by_kind(endpoint())
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert made["Service"]["spec"]["selector"] == labels
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert made["NetworkPolicy"]["spec"]["ingress"][0]["from"] == [{"podSelector": {}}]
    assert labels["app.kubernetes.io/name"] == "sums-serve"


@pytest.mark.parametrize("owned", [True, False])
def test_an_endpoint_goes_with_its_job_unless_it_is_kept(owned: bool) -> None:
    for manifest in endpoint(owned=owned).manifests():
        assert ("ownerReferences" in manifest["metadata"]) is owned


def test_an_endpoint_keeps_what_no_option_names() -> None:
    def again(earlier: Endpoint | None, **options: Any) -> Endpoint:
        present = by_kind(earlier)["Deployment"] if earlier else None
        nothing: dict[str, Any] = {"replicas": None, "api_key_secret": None, "owned": None}
        given = choice(finalModel=FINAL)
        others: dict[str, Any] = {"choice": given, "images": given.images(), "name": "sums-serve"}
        return Endpoint.changed(present, **{**nothing, **options}, **others)

    first = again(None)
    assert (first.replicas, first.api_key_secret, first.owned) == (1, "", True)
    before = endpoint(api_key_secret="keys", replicas=3, owned=False)
    kept = again(before)
    assert (kept.replicas, kept.api_key_secret, kept.owned) == (3, "keys", False)
    named = again(before, replicas=1, api_key_secret="", owned=True)
    assert (named.replicas, named.api_key_secret, named.owned) == (1, "", True)


def test_the_key_of_an_endpoint_of_an_earlier_release_is_kept() -> None:
    made = by_kind(endpoint(api_key_secret="keys"))["Deployment"]
    earlier = json.loads(json.dumps(made).replace(API_KEY_VOLUME, "api-key"))
    given = choice(finalModel=FINAL)
    again = Endpoint.changed(
        earlier,
        replicas=None,
        api_key_secret=None,
        owned=None,
        choice=given,
        images=given.images(),
        name="sums-serve",
    )
    assert earlier != made
    assert again.api_key_secret == "keys"


TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
PULL = {"name": "of-the-job"}
CERTIFICATES = {"name": "certificates", "mountPath": "/certs"}
POD_TEMPLATE = {
    "metadata": {"labels": {"team": "a", "app.kubernetes.io/name": "mine"}},
    "spec": {
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "runtimeClassName": "nvidia",
        "imagePullSecrets": [PULL],
        "initContainers": [
            {"name": "stage", "volumeMounts": [CERTIFICATES]},
            {"name": "engine", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
        ],
        "containers": [{"name": "agent", "env": []}, {"name": "sidecar", "image": "x:1"}],
        "volumes": [{"name": "certificates", "configMap": {"name": "ca"}}],
    },
}


def test_pods_of_a_model_run_where_the_jobs_samplers_do() -> None:
    given = choice(finalModel=FINAL)
    (group,) = given.spec["samplers"]
    template = group.get("template") or {}
    template = {
        **template,
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [TOLERATION],
        "podTemplate": POD_TEMPLATE,
    }
    spec = {**given.spec, "samplers": [{**group, "template": template}]}
    given = replace(given, spec=spec)
    images = given.images()
    served = Endpoint(choice=given, images=images, name="sums-serve")
    deployment = by_kind(served)["Deployment"]["spec"]
    working = job_manifest(given, images, verb="download", arguments=["hand-out"], seconds=60)
    for pod in (deployment["template"], working["spec"]["template"]):
        placed = pod["spec"]
        assert placed["nodeSelector"] == {"gpu": "h100"}
        assert [each["key"] for each in placed["tolerations"]] == ["nvidia.com/gpu", "spot"]
        assert placed["runtimeClassName"] == "nvidia"
        assert placed["imagePullSecrets"] == [{"name": "pull"}, PULL]
        assert "certificates" in {each["name"] for each in placed["volumes"]}
        containers = {
            each["name"]: each
            for each in [*placed.get("initContainers", []), *placed["containers"]]
        }
        assert not {"agent", "sidecar"} & set(containers)
        staging = containers.get("stage") or containers["model"]
        assert CERTIFICATES in staging["volumeMounts"]
        assert staging["image"] == "s:1"
    labels = deployment["template"]["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/name"]) == ("a", "sums-serve")
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    (engine,) = (
        each for each in deployment["template"]["spec"]["containers"] if each["name"] == "engine"
    )
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in engine["env"]


def test_what_no_endpoint_can_serve_is_refused() -> None:
    given = choice(3, finalModel=FINAL)
    newer = Endpoint(
        choice=replace(given, spec={**given.spec, "later": 1}), images=given.images(), name="x"
    )
    with pytest.raises(UsageError, match=r"spec\.later of RLJob sums cannot be read"):
        newer.manifests()
    with pytest.raises(UsageError, match=r"'a\.b' is no name of a Service"):
        replace(newer, name="a.b").manifests()
    shared = {**given.spec, "samplers": [{"name": "main", "poolRef": {"name": "pool"}}]}
    elsewhere = Endpoint(choice=replace(given, spec=shared), images=given.images(), name="x")
    with pytest.raises(UsageError, match="has no group of samplers of its own"):
        elsewhere.manifests()


@pytest.mark.parametrize(
    "beside",
    [
        {"dry_run": True},
        {"keep": True},
        {"version": 3},
        {"replicas": 2},
        {"api_key_secret": ""},
        {"group": "main"},
        {"image": "s:1"},
        {"engine_image": "e:1"},
    ],
)
def test_nothing_is_deleted_where_another_option_asks_for_something_else(
    beside: dict[str, Any],
) -> None:
    with pytest.raises(UsageError, match=r"--stop deletes the endpoint.*Leave out the version"):
        serve(Invocation(), "sums", stop=True, **beside)


def test_how_to_ask_fits_a_terminal() -> None:
    shown = described(endpoint(api_key_secret="keys"))
    assert "http://sums-serve.lab.svc/v1" in shown
    assert max(map(len, shown.splitlines())) <= 80


STAGING = {"name": "stage", "state": {"running": {}}}
REFUSED = {
    "name": "stage",
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 2, "message": "version 7 is deleted"}},
}
ENGINE = {"name": "engine", "state": {"running": {}}, "restartCount": 2}


def test_what_an_endpoints_pod_does_is_said() -> None:
    assert pod_doing(pod("Pending", initContainerStatuses=[STAGING])).endswith("stages the model")
    started = pod_doing(pod("Running", containerStatuses=[ENGINE]))
    assert "the engine starts, after 2 restarts" in started
    assert "not scheduled" in pod_doing(pod("Pending", **UNSCHEDULED))
    with pytest.raises(RequestRefusedError, match="version 7 is deleted"):
        pod_doing(pod("Pending", initContainerStatuses=[REFUSED]))
