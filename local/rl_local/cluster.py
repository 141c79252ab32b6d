"""The local cluster as a whole: up, down, status."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rl_local import addons, progress
from rl_local.build import binaries, image_builds, images
from rl_local.control_plane import components, kubernetes, owner, pki, processes, render
from rl_local.layout import NODE, REGISTRY, Layout, locked
from rl_local.system import debian, files, network, places, teardown

STOP_ORDER = (
    "kubelet",
    "kube-proxy",
    "kube-scheduler",
    "kube-controller-manager",
    "kube-apiserver",
    "containerd",
    "etcd",
    "registry",
)
KUBECONFIGS = ("kubelet", "kube-proxy", "kube-controller-manager", "kube-scheduler")
Built = Mapping[str, "Future[Path]"]


def up(layout: Layout, names: Iterable[str]) -> dict[str, str]:
    """Start the cluster and push the images ``names`` to its registry; return their references.

    Parts that are running or built already are left alone, so an interrupted run can be repeated.

    Raises:
        LocalError: a part cannot be built or started; started parts stay, for inspection.
    """
    wanted = images.select(names)
    began = time.monotonic()
    debian.ensure(layout)
    with (
        locked(layout, "cluster"),
        ThreadPoolExecutor(2) as builders,
        ThreadPoolExecutor(1) as images_,
    ):
        try:
            started = ensure_registry(layout)
            image_builds.tidy(layout)
            pushed = images_.submit(image_builds.ImageBuilder(layout).push_all, wanted)
            built = {
                binary: builders.submit(binaries.ensure, layout, binary)
                for binary in binaries.BINARIES
                if binary not in binaries.ON_DEMAND
            }
            started += _start(layout, built)
            for future in built.values():
                future.result()
            references = pushed.result()
        except BaseException:
            progress.ENDING.set()
            builders.shutdown(cancel_futures=True)
            raise
    what = f"started {', '.join(started)}" if started else "everything was running"
    progress.say(f"the cluster is up after {time.monotonic() - began:.1f} s; {what}")
    return references


def _start(layout: Layout, built: Built) -> list[str]:
    """Start the parts that do not run, as soon as their binaries are built; return their names."""
    programs = {name: built[name].result() for name in ("kubernetes", "etcd")}
    address = network.node_address()
    cluster_images = image_builds.ImageBuilder(layout)
    pause = cluster_images.reference(images.IMAGES["pause"])
    _configure(layout, address, pause)
    places.remember(layout)
    network.prepare(layout.state / "sysctls.json")
    teardown.make_groups()
    started: list[str] = []
    for stage in components.control_plane(layout, programs, address):
        started += processes.ensure(layout, stage)
    for name in images.CLUSTER_IMAGES:
        built[name].result()
    references = cluster_images.push_all(images.select(images.CLUSTER_IMAGES))
    progress.wait_until(
        lambda: kubernetes.node_ready(layout), what=f"node {NODE} to be Ready", seconds=120
    )
    addons.ensure(layout, references)
    addons.await_available(layout)
    return started


def ensure_registry(layout: Layout) -> list[str]:
    """Start the local image registry if it does not run; return the names of started processes."""
    debian.require()
    with locked(layout, "registry"):
        owner.claim(layout)
        files.write(layout.state / "registry.yaml", render.registry(layout))
        return processes.ensure(layout, [components.registry(layout)])


def _configure(layout: Layout, address: str, pause_image: str) -> None:
    state, keys = layout.state, layout.state / "pki"
    pki.ensure(keys, address)
    for user in KUBECONFIGS:
        files.write(state / f"{user}.kubeconfig", pki.kubeconfig(keys, user, name=NODE), mode=0o600)
    files.write(layout.kubeconfig, pki.kubeconfig(keys, "admin", name=NODE), mode=0o600)
    _link_pulled(layout)
    files.write(state / "containerd.toml", render.containerd(layout, pause_image=pause_image))
    files.write(state / "registries" / REGISTRY / "hosts.toml", render.registry_hosts())
    files.write(state / "cni/10-rl-operator.conflist", render.network(layout))
    files.write(state / "kubelet.yaml", render.kubelet(layout, resolv_conf=addons.resolv_conf()))


def _link_pulled(layout: Layout) -> None:
    """Link containerd's root, which lies in the state folder, to the cache."""
    root = layout.state / "containerd/root"
    if not root.exists():
        layout.pulled.mkdir(parents=True, exist_ok=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        root.unlink(missing_ok=True)
        root.symlink_to(layout.pulled)


def down(layout: Layout) -> None:
    """Stop and remove everything that was started, and wait until it is gone; keep the caches.

    Raises:
        LocalError: a part cannot be removed, or the machine's cluster is another one; the message
            names it.
    """
    debian.require()
    with locked(layout, "cluster"), locked(layout, "registry"):
        if owner.present(layout):
            _remove(layout)
        else:
            progress.say(f"nothing is there to remove: nothing was started in {layout.state}")


def _remove(layout: Layout) -> None:
    began = time.monotonic()
    recorded = processes.recorded(layout)
    order = [*STOP_ORDER, *sorted(set(recorded) - set(STOP_ORDER))]
    before_pods, after_pods = order[:4], order[4:]
    stopped = [name for name in before_pods if processes.stop(layout, name)]
    killed = teardown.kill_pods(layout)
    reusable = "containerd" not in recorded or teardown.forget_containers(layout)
    stopped += [name for name in after_pods if processes.stop(layout, name)]
    if not reusable:
        teardown.remove_tree(layout.pulled)
    # containerd may have been starting a shim when it was stopped.
    killed += teardown.kill_pods(layout)
    teardown.remove_shim_sockets(layout)
    teardown.remove_groups()
    places.remove(layout)
    network.remove(layout.state / "sysctls.json")
    teardown.remove_tree(layout.state)
    # Last, so that an interrupted `down` can be repeated.
    owner.release(layout)
    took = f"{time.monotonic() - began:.1f} s"
    progress.say(
        f"stopped {len(stopped)} processes and {killed} of pods, removed {layout.state}: {took}"
    )


def status(layout: Layout) -> Iterator[str]:
    """A line for each recorded process: name, process id, seconds since its start, health."""
    for name, record in processes.recorded(layout).items():
        if not record.alive():
            yield f"{name:<24} {'-':>8} {'-':>10}  dead"
            continue
        component = _by_name(layout).get(name)
        healthy = component is not None and component.healthy()
        word = "healthy" if healthy else "not healthy"
        yield f"{name:<24} {record.pid:>8} {record.age_seconds():>8.0f} s  {word}"


def _by_name(layout: Layout) -> dict[str, components.Component]:
    # Health needs neither the real binaries nor the real address.
    nowhere = {"kubernetes": Path("kubernetes"), "etcd": Path("etcd")}
    stages = components.control_plane(layout, nowhere, "0.0.0.0")
    return {component.name: component for stage in stages for component in stage}
