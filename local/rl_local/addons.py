"""Installs what the cluster needs besides Kubernetes: DNS, training-operator, volumes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_local import progress, versions
from rl_local.build import binaries
from rl_local.control_plane import kubernetes, render
from rl_local.control_plane.kubernetes import Kubectl
from rl_local.errors import DeadlinePassedError, LocalError
from rl_local.layout import RUN_AS, Layout
from rl_local.system import scratch

VOLUMES = 8
VOLUME_GIBIBYTES = 20
RESOLV_CONFS = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
DELETE_SECONDS = 180.0
DEPLOYMENTS = (("kube-system", "coredns"), ("kubeflow", "training-operator"))


def resolv_conf() -> Path:
    """The machine's file of name servers; with systemd's resolver, the one behind its stub."""
    return next(path for path in RESOLV_CONFS if path.exists() or path == RESOLV_CONFS[-1])


def ensure(layout: Layout, images: dict[str, str]) -> None:
    """Apply the manifests that changed since the last time or whose objects are missing."""
    kubectl = Kubectl.local(layout)
    source = resolv_conf()
    servers = render.nameservers(source.read_text()) if source.exists() else []
    template = (layout.root / "local/manifests/coredns.yaml").read_text()
    dns = render.coredns(template, image=images["coredns"], servers=servers)
    _apply_changed(layout, "coredns", dns, lambda: kubectl.apply("-f", "-", stdin=dns))
    folder = layout.state / "volumes"
    items = render.volumes(folder, VOLUMES, VOLUME_GIBIBYTES)
    volumes = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    _make_folders(folder)
    _apply_changed(layout, "volumes", volumes, lambda: kubectl.apply("-f", "-", stdin=volumes))
    image = images["training-operator"]
    _apply_changed(
        layout, "training-operator", image, lambda: apply_training_operator(layout, kubectl, image)
    )


def apply_training_operator(layout: Layout, kubectl: Kubectl, image: str) -> None:
    """Apply training-operator's manifests with ``image``; it only serves PyTorchJobs."""
    module = binaries.module_folder(binaries.TRAINING_OPERATOR, versions.TRAINING_OPERATOR)
    with scratch.folder(layout, "training-operator") as folder:
        binaries.copy_writable(module / "manifests", folder / "manifests")
        (folder / "kustomization.yaml").write_text(render.training_operator(image))
        kubectl.apply("-k", str(folder))


@contextmanager
def agent_sandbox(layout: Layout, image: str) -> Iterator[None]:
    """agent-sandbox with its controller, which the cluster has while this context lasts.

    Its kinds go with it, so nothing of theirs may be left at the end.

    Args:
        layout: of the local cluster, which runs.
        image: of the controller.
    """
    kubectl = Kubectl.local(layout)
    module = binaries.module_folder(binaries.AGENT_SANDBOX, versions.AGENT_SANDBOX)
    with scratch.folder(layout, "agent-sandbox") as folder:
        binaries.copy_writable(module / "k8s", folder / "k8s")
        (folder / "kustomization.yaml").write_text(render.agent_sandbox(image))
        try:
            kubectl.apply("-k", str(folder))
            await_available(layout, deployments=[render.AGENT_SANDBOX])
            yield
        finally:
            kubectl("delete", "-k", str(folder), "--ignore-not-found", timeout=DELETE_SECONDS)


def await_available(
    layout: Layout, seconds: float = 180, *, deployments: Iterable[tuple[str, str]] = DEPLOYMENTS
) -> None:
    """Wait for CoreDNS and training-operator, or for other Deployments, by namespace and name.

    Raises:
        LocalError: a Deployment is not Available in time; the message has its containers' states.
    """
    for namespace, name in deployments:
        try:
            progress.wait_until(
                lambda namespace=namespace, name=name: kubernetes.deployment_available(  # type: ignore[misc]
                    layout, namespace, name
                ),
                what=f"Deployment {namespace}/{name} to be Available",
                seconds=seconds,
            )
        except DeadlinePassedError as error:
            raise LocalError(f"{error}\n{kubernetes.pod_troubles(layout, namespace)}") from None


def recycle_volumes(layout: Layout) -> list[str]:
    """Empty every released volume and make it available again; return their names."""
    kubectl = Kubectl.local(layout)
    listed = kubernetes.get(layout, "/api/v1/persistentvolumes") or {"items": []}
    names = [
        volume["metadata"]["name"]
        for volume in listed["items"]
        if volume["status"]["phase"] == "Released"
        and volume["spec"].get("storageClassName") == "local"
    ]
    for name in names:
        folder = layout.state / "volumes" / name
        # An interrupted run may have removed it already.
        if folder.exists():
            shutil.rmtree(folder)
        _make_folder(folder)
        kubectl(
            "patch", "pv", name, "--type=json", "-p", '[{"op":"remove","path":"/spec/claimRef"}]'
        )
    return names


def _make_folders(folder: Path) -> None:
    for number in range(VOLUMES):
        _make_folder(folder / f"local-{number}")


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, RUN_AS, RUN_AS)
    folder.chmod(0o770)


def _apply_changed(layout: Layout, name: str, content: str, apply: Callable[[], None]) -> None:
    """Apply, unless the same content was applied before and the object still exists."""
    note = layout.state / "applied" / name
    wanted = hashlib.sha256(content.encode()).hexdigest()
    if note.exists() and note.read_text() == wanted and _present(layout, name):
        return
    apply()
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(wanted)


def _present(layout: Layout, name: str) -> bool:
    paths = {
        "coredns": "/apis/apps/v1/namespaces/kube-system/deployments/coredns",
        "training-operator": "/apis/apps/v1/namespaces/kubeflow/deployments/training-operator",
        "volumes": f"/api/v1/persistentvolumes/local-{VOLUMES - 1}",
    }
    return kubernetes.get(layout, paths[name]) is not None
