"""Renders configuration files of the node as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_local.layout import (
    BRIDGE,
    CGROUP,
    DNS_ADDRESS,
    NETWORK,
    NODE,
    NODE_RANGE,
    REGISTRY_PORT,
    Layout,
)

AGENT_SANDBOX = ("agent-sandbox-system", "agent-sandbox-controller")
"""Namespace and name of its Deployment."""


def containerd(layout: Layout, *, pause_image: str) -> str:
    """Configuration of the cluster's own containerd, separate from the machine's."""
    base = layout.state / "containerd"
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{base}/root"
state = "{base}/run"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", \
"io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{layout.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{base}/opt"
[{cri}]
  sandbox_image = "{pause_image}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [{cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{layout.state}/cni"
  [{cri}.registry]
    config_path = "{layout.state}/registries"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{layout.state}/runc"
"""


def registry_hosts() -> str:
    """Containerd's configuration for the local registry: plain HTTP on loopback."""
    address = f"http://127.0.0.1:{REGISTRY_PORT}"
    return f'server = "{address}"\n[host."{address}"]\n  capabilities = ["pull", "resolve"]\n'


def registry(layout: Layout) -> str:
    """The registry's configuration (as JSON); it listens only on loopback."""
    document = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(layout.cache / "registry")},
            "cache": {"blobdescriptor": "inmemory"},
            "delete": {"enabled": True},
        },
        "http": {"addr": f"127.0.0.1:{REGISTRY_PORT}"},
    }
    return json.dumps(document, indent=1)


def network(layout: Layout) -> str:
    """The CNI configuration: a bridge, addresses counted in the state folder."""
    ranges = [[{"subnet": NODE_RANGE}]]
    ipam = {
        "type": "host-local",
        "dataDir": str(layout.state / "addresses"),
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": ipam,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    document = {"cniVersion": "0.4.0", "name": NETWORK, "plugins": [bridge, portmap]}
    return json.dumps(document, indent=1)


def kubelet(layout: Layout, *, resolv_conf: Path) -> str:
    """The kubelet's configuration (JSON, which is YAML)."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.state / "pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolv_conf),
        "podLogsDir": str(layout.state / "pods"),
        "volumePluginDir": str(layout.state / "kubelet/plugins-exec"),
        "serializeImagePulls": False,
        "maxParallelImagePulls": 4,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        # Never remove an image that a later pod would have to pull again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    return json.dumps(document, indent=1)


def nameservers(resolv_conf: str) -> list[str]:
    """The name servers that pods can reach: all but loopback addresses."""
    words = [line.split() for line in resolv_conf.splitlines()]
    servers = [word[1] for word in words if len(word) >= 2 and word[0] == "nameserver"]
    return [server for server in servers if not server.startswith("127.") and server != "::1"]


def coredns(template: str, *, image: str, servers: Sequence[str]) -> str:
    """The manifest of CoreDNS; it forwards names outside the cluster to ``servers``."""
    forward = f"forward . {' '.join(servers)}" if servers else ""
    return template.replace("${IMAGE}", image).replace("${FORWARD}", forward)


def volumes(folder: Path, count: int, gibibytes: int) -> list[dict[str, Any]]:
    """A StorageClass ``local`` and ``count`` PersistentVolumes on folders of the node."""
    storage_class: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Retain",
    }
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    items: list[dict[str, Any]] = [storage_class]
    for number in range(count):
        name = f"local-{number}"
        spec = {
            "capacity": {"storage": f"{gibibytes}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "local": {"path": str(folder / name)},
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]},
            },
        }
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
        items.append({**volume, "spec": spec})
    return items


def training_operator(image: str) -> str:
    """A kustomization of the module's manifests with our image and only PyTorchJobs."""
    name, _, tag = image.rpartition(":")
    patch = [
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/args",
            "value": ["--enable-scheme=pytorchjob", "--controller-threads=4"],
        },
        # With upstream's values a start waits up to 25 s for the first probe.
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/readinessProbe/initialDelaySeconds",
            "value": 1,
        },
        {
            "op": "add",
            "path": "/spec/template/spec/containers/0/readinessProbe/periodSeconds",
            "value": 2,
        },
    ]
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["manifests/overlays/standalone"],
        "images": [
            {
                "name": "ghcr.io/kubeflow/training-v1/training-operator",
                "newName": name,
                "newTag": tag,
            }
        ],
        "patches": [
            {
                "target": {"kind": "Deployment", "name": "training-operator"},
                "patch": json.dumps(patch),
            }
        ],
    }
    return json.dumps(document, indent=1)


def agent_sandbox(image: str) -> str:
    """A kustomization of the module's manifests with our image, which has no folder ``/tmp``."""
    pod = "/spec/template/spec"
    container = f"{pod}/containers/0"
    patch = [
        {"op": "replace", "path": f"{container}/image", "value": image},
        {"op": "add", "path": f"{pod}/volumes/-", "value": {"name": "tmp", "emptyDir": {}}},
        {
            "op": "add",
            "path": f"{container}/volumeMounts/-",
            "value": {"name": "tmp", "mountPath": "/tmp"},
        },
    ]
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["k8s"],
        "patches": [
            {
                "target": {"kind": "Deployment", "name": AGENT_SANDBOX[1]},
                "patch": json.dumps(patch),
            }
        ],
    }
    return json.dumps(document, indent=1)
