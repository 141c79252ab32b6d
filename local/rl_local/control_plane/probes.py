"""Health checks: what processes answer on loopback ports and on a socket."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
from pathlib import Path

PROBE_SECONDS = 2.0


def client_identity(pki: Path, user: str) -> ssl.SSLContext:
    """A TLS context that presents ``user``'s certificate and trusts the cluster's authority."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / f"{user}.crt", pki / f"{user}.key")
    return context


def etcd_identity(pki: Path) -> ssl.SSLContext:
    """A TLS context of the only client that etcd answers; it trusts etcd alone."""
    context = ssl.create_default_context(cafile=str(pki / "etcd.crt"))
    context.load_cert_chain(pki / "etcd.crt", pki / "etcd.key")
    return context


def etcd_answers(pki: Path) -> bool:
    """Whether etcd is healthy; not so while the keys of its only client do not exist."""
    try:
        identity = etcd_identity(pki)
    except OSError:
        return False
    return answers("https", 2379, "/health", identity)


def answers(scheme: str, port: int, path: str, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a loopback port answers 200; without ``tls`` the certificate is not verified."""
    try:
        if scheme == "https":
            context = tls or ssl._create_unverified_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=PROBE_SECONDS, context=context
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return False
    return status == 200


def containerd_answers(address: Path) -> bool:
    """Whether containerd serves its API on the socket."""
    if not address.is_socket():
        return False
    argv = ["ctr", "--address", str(address), "--timeout", "2s", "version"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=PROBE_SECONDS + 2)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def port_free(port: int) -> bool:
    """Whether a TCP port can be bound on every address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
