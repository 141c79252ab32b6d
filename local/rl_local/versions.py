"""Versions of the local cluster's parts; etcd's version is in go/etcd/go.mod."""

KUBERNETES = "v1.34.4"
COREDNS = "v1.12.4"
HELM = "v3.19.0"
ACTIONLINT = "v1.7.12"
KREW = "v0.4.3"
PROMETHEUS = "v0.316.0"
"""Its module's version: Prometheus 3.16."""
TRAINING_OPERATOR = "v1.9.3"
FERRETDB = "v1.24.2"
MINIO = "v0.0.0-20260212201848-7aac2a2c5b7c"
KWOK = "v0.7.0"
KUEUE = "v0.15.0"
KEDA = "v2.18.0"
AGENT_SANDBOX = "v0.5.6"
GO_MINIMUM = (1, 26)
DEBIAN_SUITE = "bookworm"

# Raised by hand when the way an image or a binary is built changes, but none of its inputs does.
BUILD_RECIPE = 1

DEBIAN_PACKAGES = (
    "buildah",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "debootstrap",
    "docker-registry",
    "gcc",
    "iproute2",
    "iptables",
    "kmod",
    "libc6-dev",
    "openssl",
    "patch",
    "runc",
)
