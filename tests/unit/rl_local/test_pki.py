"""Keys and certificates, made with openssl in a folder of the test's own."""

import json
from pathlib import Path

import pytest

from rl_local.control_plane import pki, probes
from rl_local.errors import LocalError


def test_certificates_are_made_again_only_for_another_address(tmp_path: Path) -> None:
    pki.ensure(tmp_path, "192.0.2.1")
    first = {path.name: path.read_bytes() for path in tmp_path.glob("*.crt")}
    assert set(first) == {
        "ca.crt",
        "etcd.crt",
        "apiserver.crt",
        *(f"{client.name}.crt" for client in pki.CLIENTS),
    }
    pki.ensure(tmp_path, "192.0.2.1")
    assert first == {path.name: path.read_bytes() for path in tmp_path.glob("*.crt")}
    pki.ensure(tmp_path, "192.0.2.9")
    changed = {
        path.name for path in tmp_path.glob("*.crt") if path.read_bytes() != first[path.name]
    }
    assert changed == {"apiserver.crt"}
    config = json.loads(pki.kubeconfig(tmp_path, "admin", name="local"))
    assert config["current-context"] == config["contexts"][0]["name"] == "local"


def test_an_interrupted_change_of_the_address_leaves_no_key_without_its_certificate(
    tmp_path: Path,
) -> None:
    pki.ensure(tmp_path, "192.0.2.1")
    # Without it, the new key is made and the signing fails.
    authority = (tmp_path / "ca.key").rename(tmp_path / "aside")
    with pytest.raises(LocalError, match="openssl x509"):
        pki.ensure(tmp_path, "192.0.2.2")
    authority.rename(tmp_path / "ca.key")
    pki.ensure(tmp_path, "192.0.2.1")
    # It refuses a key that does not fit.
    probes.client_identity(tmp_path, "apiserver")
