import json
from pathlib import Path

import pytest

from rl_local.control_plane import components, render
from rl_local.layout import ROOT, Layout
from rl_local.system.teardown import mounts_below

LAYOUT = Layout(cache=Path("/cache"), state=Path("/state"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("search x\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n", ["192.0.2.1", "192.0.2.2"]),
        ("nameserver 127.0.0.53\nnameserver ::1\nnameserver fd00::1\n", ["fd00::1"]),
    ],
)
def test_name_servers_that_pods_can_reach(text: str, expected: list[str]) -> None:
    assert render.nameservers(text) == expected


@pytest.mark.parametrize("servers", [[], ["192.0.2.1", "192.0.2.2"]])
def test_coredns_forwards_only_when_there_is_somewhere(servers: list[str]) -> None:
    template = (ROOT / "local/manifests/coredns.yaml").read_text()
    text = render.coredns(template, image="registry/coredns:1", servers=servers)
    assert "${" not in text
    assert "image: registry/coredns:1" in text
    assert ("forward . 192.0.2.1 192.0.2.2" in text) == bool(servers)


def test_volumes_are_retained_and_bound_to_the_node() -> None:
    storage_class, *volumes = render.volumes(Path("/state/volumes"), 3, 20)
    assert storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
    names = [volume["metadata"]["name"] for volume in volumes]
    assert names == ["local-0", "local-1", "local-2"]
    spec = json.loads(json.dumps(volumes[1]["spec"]))
    assert spec["local"]["path"] == "/state/volumes/local-1"
    assert (spec["capacity"]["storage"], spec["persistentVolumeReclaimPolicy"]) == (
        "20Gi",
        "Retain",
    )


def test_training_operator_serves_pytorchjobs_with_our_image() -> None:
    kustomization = json.loads(render.training_operator("localhost:5000/x/training-operator:abc"))
    image = kustomization["images"][0]
    assert (image["newName"], image["newTag"]) == ("localhost:5000/x/training-operator", "abc")
    assert "--enable-scheme=pytorchjob" in kustomization["patches"][0]["patch"]


def test_agent_sandboxs_controller_has_our_image_and_a_folder_for_its_certificates() -> None:
    kustomization = json.loads(render.agent_sandbox("localhost:5000/x/controller:abc"))
    (patch,) = kustomization["patches"]
    values = [change["value"] for change in json.loads(patch["patch"])]
    assert values[0] == "localhost:5000/x/controller:abc"
    assert {"name": "tmp", "mountPath": "/tmp"} in values


def test_every_configuration_lies_in_the_state_folder() -> None:
    containerd = render.containerd(LAYOUT, pause_image="p:1")
    assert 'root = "/state/containerd/root"' in containerd
    assert json.loads(render.network(LAYOUT))["plugins"][0]["ipam"]["dataDir"] == "/state/addresses"
    kubelet = json.loads(render.kubelet(LAYOUT, resolv_conf=Path("/etc/resolv.conf")))
    assert kubelet["podLogsDir"] == "/state/pods"
    assert json.loads(render.registry(LAYOUT))["http"]["addr"] == "127.0.0.1:5000"


def test_no_two_components_share_a_name_or_a_port() -> None:
    binaries = {"kubernetes": Path("/k"), "etcd": Path("/e")}
    stages = components.control_plane(LAYOUT, binaries, "192.0.2.1")
    every = [component for stage in stages for component in stage]
    ports = [port for component in every for port in component.ports]
    assert len({component.name for component in every}) == len(every)
    assert len(set(ports)) == len(ports)


def test_mounts_below_a_folder_are_listed_last_first() -> None:
    points = ["/", "/state", "/state/a", "/state/a/b\\040c", "/state-other"]
    text = "\n".join(f"{number} 1 0:1 / {point} rw - x x rw" for number, point in enumerate(points))
    expected = ["/state/a/b c", "/state/a", "/state"]
    assert mounts_below(text, Path("/state")) == expected
