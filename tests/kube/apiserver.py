"""A real Kubernetes API server for tests: etcd and kube-apiserver as processes, nothing else.

No controllers run, but those that a test starts: what a test does not write is not there, and
nothing is garbage-collected.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kube import api_requests
from tests.servers import NEVER, ROOT, SELDOM, Server, binary, free_port
from tests.waiting import HUNG_SECONDS

ETCD_BYTES = 8 << 30
"""Thousands of jobs, each version of which stays for five minutes; by default it is 2 GB."""
DRY_RUN = "--dry-run=server"


@dataclass(frozen=True)
class ApiServer:
    """A running API server and how its administrator reaches it."""

    url: str
    token: str
    folder: Path
    etcd: Server
    process: Server

    def stop(self) -> None:
        """End both processes, so that etcd's data can be copied."""
        self.process.stop()
        self.etcd.stop()

    def go_on(self) -> None:
        """Start both again, on the same ports."""
        self.etcd.start()
        _launch(self)

    def kubectl(
        self, *arguments: str, stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        command = [binary("kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=HUNG_SECONDS,
            env=os.environ | NEVER,
        )
        if check and done.returncode:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done

    def get(self, *arguments: str) -> Any:
        """What ``kubectl get … -o json`` says."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    @property
    def requests(self) -> api_requests.Requests:
        """The administrator's connections."""
        return api_requests.requests_to(
            self.url, token=self.token, certificate=str(self.certificate)
        )

    def set_status(self, kind: str, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Merge into an object's status; ``kind`` as kubectl takes it."""
        code, answer = api_requests.patch_status(self.requests, kind, namespace, name, status)
        if code >= 400:
            pytest.fail(f"status of {kind} {namespace}/{name}: {answer}")

    def install(self, path: Path) -> None:
        """Apply CRDs and wait until the API server serves them."""
        self.kubectl("apply", "--server-side", "-f", str(path))
        deadline = time.monotonic() + HUNG_SECONDS
        while not all(_established(item) for item in self.get("crd")["items"]):
            if time.monotonic() > deadline:
                pytest.fail(f"{path} was not established in {HUNG_SECONDS:.0f} s")
            time.sleep(0.05)

    @property
    def certificate(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"


def controller_manager(apiserver: ApiServer, folder: Path, *options: str) -> Server:
    """Kubernetes' own controllers, those that ``--controllers`` names, not started yet."""
    port = free_port()
    command = [
        binary("kubernetes"),
        "kube-controller-manager",
        f"--kubeconfig={apiserver.kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        *options,
    ]
    return Server(command, f"https://127.0.0.1:{port}/healthz", folder / "manager.log")


def start(folder: Path, running: contextlib.ExitStack) -> ApiServer:
    """Start both processes on ports and data of their own; the stack stops them."""
    etcd_port, peer_port, port = free_port(), free_port(), free_port()
    etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
    etcd = Server(
        command=[
            binary("etcd"),
            "--data-dir",
            str(folder / "etcd"),
            "--unsafe-no-fsync",
            "--listen-client-urls",
            etcd_url,
            "--advertise-client-urls",
            etcd_url,
            "--listen-peer-urls",
            peer_url,
            "--initial-advertise-peer-urls",
            peer_url,
            "--initial-cluster",
            f"default={peer_url}",
            "--log-level",
            "error",
            "--quota-backend-bytes",
            str(ETCD_BYTES),
        ],
        ready_url=f"{etcd_url}/health",
        log=folder / "etcd.log",
    )
    running.callback(etcd.stop)
    etcd.start()
    token, key = secrets.token_hex(16), folder / "sa.key"
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    apiserver = Server(
        command=[
            binary("kubernetes"),
            "kube-apiserver",
            "--etcd-servers",
            etcd_url,
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(port),
            "--cert-dir",
            str(folder / "certificates"),
            "--authorization-mode",
            "RBAC",
            "--allow-privileged",
            "--token-auth-file",
            str(folder / "tokens.csv"),
            "--service-account-key-file",
            str(key),
            "--service-account-signing-key-file",
            str(key),
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-cluster-ip-range",
            "10.0.0.0/24",
            "--disable-admission-plugins",
            "ServiceAccount",
            "--shutdown-delay-duration",
            "0s",
            "--shutdown-watch-termination-grace-period",
            "0s",
        ],
        ready_url="",
        log=folder / "apiserver.log",
    )
    running.callback(apiserver.stop)
    started = ApiServer(
        url=f"https://127.0.0.1:{port}", token=token, folder=folder, etcd=etcd, process=apiserver
    )
    started.kubeconfig.write_text(json.dumps(kubeconfig(started, token)))
    _launch(started)
    return started


def _launch(server: ApiServer) -> None:
    process = server.process
    with process.log.open("ab") as log:
        process.process = subprocess.Popen(
            process.command, stdout=log, stderr=log, env=SELDOM | os.environ
        )
    _wait_until_ready(server, process)


def kubeconfig(server: ApiServer, token: str) -> dict[str, Any]:
    """A kubeconfig that presents ``token`` and trusts the server's self-made certificate."""
    cluster = {"server": server.url, "certificate-authority": str(server.certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }


def apply(apiserver: ApiServer, manifest: dict[str, Any], *options: str) -> str:
    """Apply as a user does; return what the API server complained of, empty when nothing.

    New objects need no process of kubectl, and neither do changes of the kinds whose lists it does
    not merge; other changes are its work.
    """
    if manifest["kind"] in api_requests.KINDS and not set(options) - {DRY_RUN}:
        dry_run = DRY_RUN in options
        refused = api_requests.create(apiserver.requests, manifest, dry_run=dry_run)
        if refused is None:
            return ""
        if refused["reason"] == api_requests.EXISTS and manifest["kind"] in api_requests.MERGED:
            refused = api_requests.change(apiserver.requests, manifest, dry_run=dry_run)
            if refused is None:
                return ""
        if refused["reason"] != api_requests.EXISTS:
            return str(refused["message"])
    done = apiserver.kubectl("apply", "-f", "-", *options, stdin=json.dumps(manifest), check=False)
    return done.stderr if done.returncode else ""


def _established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in conditions
    )


def _wait_until_ready(server: ApiServer, process: Server) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(
        f"{server.url}/readyz", headers={"Authorization": f"Bearer {server.token}"}
    )
    deadline = time.monotonic() + HUNG_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=2, context=context):
                return
        except (urllib.error.URLError, OSError):
            assert process.process is not None
            if process.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"kube-apiserver did not start: {process.log.read_text()[-2000:]}")
            time.sleep(0.1)


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server that knows our CRDs."""
    with contextlib.ExitStack() as running:
        started = start(tmp_path_factory.mktemp("apiserver"), running)
        started.install(ROOT / "crds")
        yield started
