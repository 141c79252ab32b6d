"""The local cluster's etcd and API server, on ports and in folders of the test's own."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_local.control_plane import components, pki, probes
from rl_local.control_plane.components import Component
from rl_local.control_plane.probes import answers
from rl_local.layout import Layout
from tests.servers import Server, binary, free_port
from tests.waiting import until


@dataclass(frozen=True)
class Etcd:
    """It runs; ``ports`` are its own by those that the cluster's has."""

    layout: Layout
    ports: dict[str, int]

    @property
    def pki(self) -> Path:
        return self.layout.state / "pki"

    def answers(self, tls: ssl.SSLContext, scheme: str = "https") -> bool:
        return answers(scheme, self.ports["2379"], "/health", tls)

    def launch(self, component: Component, log: Path) -> Server:
        """Start a component with these ports in the place of the cluster's."""
        words = list(component.argv)
        for theirs, ours in self.ports.items():
            words = [word.replace(f"127.0.0.1:{theirs}", f"127.0.0.1:{ours}") for word in words]
            words = [word.replace(f"port={theirs}", f"port={ours}") for word in words]
        server = Server(command=words, ready_url="", log=log)
        server.launch()
        return server


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    ports = {port: free_port() for port in ("2379", "2380", "6443")}
    made = Etcd(Layout(cache=tmp_path / "cache", state=tmp_path / "state"), ports)
    pki.ensure(made.pki, "192.0.2.1")
    component = components.etcd(made.layout, Path(binary("etcd")))
    server = made.launch(component, tmp_path / "etcd.log")
    try:
        until(lambda: made.answers(probes.etcd_identity(made.pki)), what="etcd")
        yield made
    finally:
        server.stop()


def test_etcd_answers_no_one_but_the_holder_of_its_key(etcd: Etcd) -> None:
    trusting = ssl.create_default_context(cafile=str(etcd.pki / "etcd.crt"))
    assert not etcd.answers(trusting), "without a certificate"
    assert not etcd.answers(trusting, "http"), "without TLS"
    trusting.load_cert_chain(etcd.pki / "admin.crt", etcd.pki / "admin.key")
    assert not etcd.answers(trusting), "with a certificate of the cluster's authority"
    assert os.stat(etcd.pki).st_mode & 0o077 == 0, "its key is for root alone"


def test_the_api_server_reaches_etcd(etcd: Etcd, tmp_path: Path) -> None:
    program = Path(binary("kubernetes"))
    component = components.apiserver(etcd.layout, program, "192.0.2.1")
    server = etcd.launch(component, tmp_path / "apiserver.log")
    try:
        admin = probes.client_identity(etcd.pki, "admin")
        port = etcd.ports["6443"]
        until(lambda: answers("https", port, "/readyz/etcd", admin), what="the API server")
    finally:
        server.stop()
