"""The processes of the cluster: their arguments and health checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_local.control_plane.probes import (
    answers,
    client_identity,
    containerd_answers,
    etcd_answers,
)
from rl_local.layout import NODE, POD_RANGE, REGISTRY_PORT, SERVICE_RANGE, Layout

ETCD = "https://127.0.0.1:2379"


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster.

    Attributes:
        name: name of its record, log and status line.
        argv: the program and its arguments.
        healthy: asks the process; False when it does not answer.
        files: files that it reads at its start; a change causes a restart.
        ports: TCP ports that must be free before it starts.
        start_seconds: deadline for being healthy.
    """

    name: str
    argv: tuple[str, ...]
    healthy: Callable[[], bool]
    files: tuple[Path, ...] = ()
    ports: tuple[int, ...] = ()
    start_seconds: float = 60


def registry(layout: Layout) -> Component:
    """The image registry of this machine."""
    config = layout.state / "registry.yaml"
    return Component(
        name="registry",
        argv=("docker-registry", "serve", str(config)),
        healthy=lambda: answers("http", REGISTRY_PORT, "/v2/"),
        files=(config,),
        ports=(REGISTRY_PORT,),
    )


def etcd(layout: Layout, binary: Path) -> Component:
    """The API server's store, which answers no other program.

    It does not fsync: after a power cut run `down` and `up`.
    """
    pki, peer = layout.state / "pki", "https://127.0.0.1:2380"
    certificate, key = pki / "etcd.crt", pki / "etcd.key"
    options = {
        "name": NODE,
        "data-dir": layout.state / "etcd",
        "listen-client-urls": ETCD,
        "advertise-client-urls": ETCD,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"{NODE}={peer}",
        "cert-file": certificate,
        "key-file": key,
        "trusted-ca-file": certificate,
        "client-cert-auth": "true",
        "peer-cert-file": certificate,
        "peer-key-file": key,
        "peer-trusted-ca-file": certificate,
        "peer-client-cert-auth": "true",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return Component(
        name="etcd",
        argv=(str(binary), *flags(options)),
        healthy=lambda: etcd_answers(pki),
        files=(certificate,),
        ports=(2379, 2380),
    )


def containerd(layout: Layout) -> Component:
    """The container runtime."""
    config = layout.state / "containerd.toml"
    return Component(
        name="containerd",
        argv=("containerd", "--config", str(config), "--log-level", "warn"),
        healthy=lambda: containerd_answers(layout.containerd_socket),
        files=(config,),
    )


def apiserver(layout: Layout, binary: Path, node_address: str) -> Component:
    """The API server; the only process that pods can reach."""
    pki = layout.state / "pki"
    options = {
        "etcd-servers": ETCD,
        "etcd-cafile": pki / "etcd.crt",
        "etcd-certfile": pki / "etcd.crt",
        "etcd-keyfile": pki / "etcd.key",
        "secure-port": 6443,
        "advertise-address": node_address,
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "client-ca-file": pki / "ca.crt",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-account-key-file": pki / "sa.key",
        "service-account-signing-key-file": pki / "sa.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-cluster-ip-range": SERVICE_RANGE,
        "allow-privileged": "true",
        "max-requests-inflight": 3000,
        "max-mutating-requests-inflight": 1000,
        "kubelet-client-certificate": pki / "admin.crt",
        "kubelet-client-key": pki / "admin.key",
        "kubelet-preferred-address-types": "InternalIP",
    }
    return Component(
        name="kube-apiserver",
        argv=(str(binary), "kube-apiserver", *flags(options)),
        healthy=lambda: answers("https", 6443, "/readyz", client_identity(pki, "admin")),
        files=tuple(pki / name for name in ("ca.crt", "apiserver.crt", "sa.key", "etcd.crt")),
        ports=(6443,),
        start_seconds=120,
    )


def controller_manager(layout: Layout, binary: Path) -> Component:
    """The controllers, with client rates high enough for a busy node."""
    pki, config = layout.state / "pki", layout.state / "kube-controller-manager.kubeconfig"
    options = {
        "bind-address": "127.0.0.1",
        "kubeconfig": config,
        "service-account-private-key-file": pki / "sa.key",
        "root-ca-file": pki / "ca.crt",
        "cluster-signing-cert-file": pki / "ca.crt",
        "cluster-signing-key-file": pki / "ca.key",
        "use-service-account-credentials": "true",
        "leader-elect": "false",
        "cluster-cidr": POD_RANGE,
        "allocate-node-cidrs": "true",
        "flex-volume-plugin-dir": layout.state / "kubelet/plugins-exec",
        "kube-api-qps": 1000,
        "kube-api-burst": 2000,
        "concurrent-deployment-syncs": 20,
        "concurrent-replicaset-syncs": 20,
    }
    return Component(
        name="kube-controller-manager",
        argv=(str(binary), "kube-controller-manager", *flags(options)),
        healthy=lambda: answers("https", 10257, "/healthz"),
        files=(config,),
        ports=(10257,),
    )


def scheduler(layout: Layout, binary: Path) -> Component:
    """The scheduler."""
    config = layout.state / "kube-scheduler.kubeconfig"
    options = {
        "bind-address": "127.0.0.1",
        "kubeconfig": config,
        "leader-elect": "false",
        "kube-api-qps": 1000,
        "kube-api-burst": 2000,
    }
    return Component(
        name="kube-scheduler",
        argv=(str(binary), "kube-scheduler", *flags(options)),
        healthy=lambda: answers("https", 10259, "/healthz"),
        files=(config,),
        ports=(10259,),
    )


def kubelet(layout: Layout, binary: Path, node_address: str) -> Component:
    """The node agent."""
    kubeconfig, config = layout.state / "kubelet.kubeconfig", layout.state / "kubelet.yaml"
    options = {
        "kubeconfig": kubeconfig,
        "config": config,
        "root-dir": layout.state / "kubelet",
        "cert-dir": layout.state / "kubelet/pki",
        "node-ip": node_address,
        "hostname-override": NODE,
    }
    return Component(
        name="kubelet",
        argv=(str(binary), "kubelet", *flags(options)),
        healthy=lambda: answers("http", 10248, "/healthz"),
        files=(kubeconfig, config),
        ports=(10248, 10250),
    )


def proxy(layout: Layout, binary: Path) -> Component:
    """The service proxy; it does not change the machine's connection tracking limits."""
    config = layout.state / "kube-proxy.kubeconfig"
    options = {
        "kubeconfig": config,
        "hostname-override": NODE,
        "cluster-cidr": POD_RANGE,
        "oom-score-adj": 0,
        "conntrack-max-per-core": 0,
        "conntrack-tcp-timeout-established": 0,
        "conntrack-tcp-timeout-close-wait": 0,
        "conntrack-udp-timeout": 0,
        "conntrack-udp-timeout-stream": 0,
        "healthz-bind-address": "127.0.0.1:10256",
        "metrics-bind-address": "127.0.0.1:10249",
    }
    return Component(
        name="kube-proxy",
        argv=(str(binary), "kube-proxy", *flags(options)),
        healthy=lambda: answers("http", 10256, "/livez"),
        files=(config,),
        ports=(10249, 10256),
    )


def flags(options: Mapping[str, object]) -> tuple[str, ...]:
    """Command line flags, ``--name=value`` each."""
    return tuple(f"--{name}={value}" for name, value in options.items())


def control_plane(
    layout: Layout, binaries: Mapping[str, Path], node_address: str
) -> tuple[tuple[Component, ...], ...]:
    """All processes in stages; a stage starts when the previous one is healthy."""
    kubernetes = binaries["kubernetes"]
    return (
        (registry(layout), etcd(layout, binaries["etcd"]), containerd(layout)),
        (apiserver(layout, kubernetes, node_address),),
        (
            controller_manager(layout, kubernetes),
            scheduler(layout, kubernetes),
            kubelet(layout, kubernetes, node_address),
            proxy(layout, kubernetes),
        ),
    )
