"""Plays the kubelet for the pods that read stores: a real reader for each, on a loopback address.

By default a reader runs in threads of this process and reads the Secret from the API server with
each request, so that a test need not wait for a volume to be refreshed. Started with
``processes=True`` it is ``python -m rl_reader`` with the Secret on disk, as in a pod.
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, watch

from rl_contracts.reader import PORT
from rl_operator.render import reader as rendered
from rl_reader.__main__ import listen
from rl_reader.mounted import Folder
from rl_reader.server import Server
from tests.servers import ROOT

STORE_SECONDS = 20.0
"""The machine is busy; a test that takes a store away has its own deadlines."""


class ApiFolder(Folder):
    """The Secret as the API server has it now."""

    def __init__(self, api: client.ApiClient, *, namespace: str, secret: str) -> None:
        super().__init__(Path("/nowhere"), namespace=namespace, secret=secret)
        self._api = client.CoreV1Api(api)

    def _values(self) -> dict[str, str]:
        return decoded(self._api, self._namespace, self._secret)


def decoded(api: client.CoreV1Api, namespace: str, secret: str) -> dict[str, str]:
    try:
        data = api.read_namespaced_secret(secret, namespace).data or {}
    except client.ApiException as error:
        if error.status != 404:
            raise
        return {}
    return {key: base64.b64decode(value).decode().strip() for key, value in data.items()}


@dataclass
class Running:
    """One reader."""

    address: str
    serving: Server | None = None
    process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        if self.serving is not None:
            self.serving.shutdown()
            self.serving.server_close()
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


@dataclass
class ReaderKubelet:
    """Runs the readers of all namespaces until it is closed."""

    api: client.ApiClient
    folder: Path
    processes: bool = False
    running: dict[tuple[str, str], Running] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    """Namespaces in which no pod starts."""
    namespace: str = ""
    """Empty: the pods of all."""

    def start(self) -> None:
        self._watch = watch.Watch()
        self._thread = threading.Thread(target=self._follow, name="kubelet", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._watch.stop()
        for reader in list(self.running.values()):
            reader.stop()

    _closed = False

    def _follow(self) -> None:
        core = client.CoreV1Api(self.api)
        listing, place = core.list_pod_for_all_namespaces, {}
        if self.namespace:
            listing, place = core.list_namespaced_pod, {"namespace": self.namespace}
        while not self._closed:
            try:
                for event in self._watch.stream(
                    listing, label_selector=rendered.selector(), timeout_seconds=30, **place
                ):
                    self._see(event["type"], event["raw_object"])
            except (urllib3.exceptions.HTTPError, client.ApiException, OSError):
                if not self._closed:
                    threading.Event().wait(0.1)

    def _see(self, kind: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        key = meta["namespace"], meta["uid"]
        if kind == "DELETED":
            reader = self.running.pop(key, None)
            if reader is not None:
                reader.stop()
        elif key not in self.running and meta["namespace"] not in self.held:
            self.running[key] = reader = self._run(pod)
            self._report(meta["namespace"], meta["name"], reader.address)

    def _run(self, pod: dict[str, Any]) -> Running:
        meta, (container,) = pod["metadata"], pod["spec"]["containers"]
        (variable,) = container["env"]
        secret = meta["annotations"][rendered.SECRET_ANNOTATION]
        address = "127." + ".".join(str(1 + secrets.randbelow(250)) for _ in range(3))
        if self.processes:
            return self._run_process(meta, secret, container, variable, address)
        folder = ApiFolder(self.api, namespace=meta["namespace"], secret=secret)
        serving = listen(
            folder, (address, PORT), token_sha256=variable["value"], store_seconds=STORE_SECONDS
        )
        threading.Thread(
            target=serving.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return Running(address, serving=serving)

    def _run_process(
        self,
        meta: dict[str, Any],
        secret: str,
        container: dict[str, Any],
        variable: dict[str, str],
        address: str,
    ) -> Running:
        folder = self.folder / meta["uid"]
        folder.mkdir()
        for key, value in decoded(client.CoreV1Api(self.api), meta["namespace"], secret).items():
            (folder / key).write_text(value)
        arguments = [argument for argument in container["args"] if "--folder" not in argument]
        paths = os.pathsep.join(str(ROOT / name) for name in ("contracts", "operator"))
        process = subprocess.Popen(
            [
                sys.executable,
                *container["command"][1:],
                *arguments,
                f"--folder={folder}",
                f"--listen={address}",
            ],
            env={**os.environ, "PYTHONPATH": paths, variable["name"]: variable["value"]},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return Running(address, process=process)

    def _report(self, namespace: str, name: str, address: str) -> None:
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        try:
            client.CoreV1Api(self.api).patch_namespaced_pod_status(
                name, namespace, {"status": status}
            )
        except client.ApiException as error:
            if error.status != 404:
                raise
