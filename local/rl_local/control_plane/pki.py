"""Makes the keys and certificates of the control plane with openssl, in the state folder."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from rl_local import progress

DAYS = "3650"
SERVICE_ADDRESS = "10.96.0.1"
ETCD_EXTENSIONS = ("subjectAltName=IP:127.0.0.1", "extendedKeyUsage=serverAuth,clientAuth")


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate: its file name, subject and X.509 extensions."""

    name: str
    subject: str
    extensions: str


CLIENTS = tuple(
    Identity(name, subject, "extendedKeyUsage=clientAuth")
    for name, subject in (
        ("admin", "/O=system:masters/CN=admin"),
        ("kubelet", "/O=system:nodes/CN=system:node:local"),
        ("kube-proxy", "/CN=system:kube-proxy"),
        ("kube-controller-manager", "/CN=system:kube-controller-manager"),
        ("kube-scheduler", "/CN=system:kube-scheduler"),
    )
)


def server(node_address: str) -> Identity:
    """The API server's certificate, for every name and address that clients use."""
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    names.append("kubernetes.default.svc.cluster.local")
    addresses = ["127.0.0.1", SERVICE_ADDRESS, node_address]
    alternatives = [f"DNS:{name}" for name in names] + [f"IP:{address}" for address in addresses]
    return Identity("apiserver", "/CN=kube-apiserver", f"subjectAltName={','.join(alternatives)}")


def ensure(folder: Path, node_address: str) -> None:
    """Make missing certificates, and a new one for the API server when its address changed."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    _ensure_self_signed(folder, "ca", "local-ca")
    # Of etcd and its only client, the API server. The cluster's authority signs certificates of
    # others, which must not open etcd.
    _ensure_self_signed(folder, "etcd", "etcd", *ETCD_EXTENSIONS)
    if not (folder / "sa.key").exists():
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "sa.half")
        (folder / "sa.half").replace(folder / "sa.key")
    for identity in (server(node_address), *CLIENTS):
        made_for = folder / f"{identity.name}.json"
        wanted = json.dumps([identity.subject, identity.extensions])
        if not made_for.exists() or made_for.read_text() != wanted:
            # If this is interrupted, the key may be new and the certificate old.
            made_for.unlink(missing_ok=True)
            _sign(folder, identity)
            made_for.write_text(wanted)


def _ensure_self_signed(folder: Path, name: str, common_name: str, *extensions: str) -> None:
    certificate, half = folder / f"{name}.crt", folder / f"{name}.half"
    if not certificate.exists():
        key = _new_key(folder / f"{name}.key")
        added = [word for extension in extensions for word in ("-addext", extension)]
        subject = ["-subj", f"/CN={common_name}", "-days", DAYS, *added]
        _openssl("req", "-x509", *key, *subject, "-out", half)
        half.replace(certificate)


def _sign(folder: Path, identity: Identity) -> None:
    base = folder / identity.name
    extensions = base.with_suffix(".ext")
    extensions.write_text(identity.extensions + "\n")
    request = base.with_suffix(".csr")
    _openssl("req", *_new_key(base.with_suffix(".key")), "-subj", identity.subject, "-out", request)
    _openssl(
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        folder / "ca.crt",
        "-CAkey",
        folder / "ca.key",
        "-CAcreateserial",
        "-days",
        DAYS,
        "-extfile",
        extensions,
        "-out",
        base.with_suffix(".crt"),
    )


def _new_key(path: Path) -> list[str]:
    return [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(path),
    ]


def _openssl(*arguments: str | Path) -> None:
    progress.output(["openssl", *arguments], timeout=30)


def kubeconfig(folder: Path, user: str, *, name: str) -> str:
    """A kubeconfig (as JSON) with a single context ``name`` for ``user`` and inlined files."""

    def inline(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": inline("ca.crt")}
    credentials = {
        "client-certificate-data": inline(f"{user}.crt"),
        "client-key-data": inline(f"{user}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return json.dumps(document, indent=1)
