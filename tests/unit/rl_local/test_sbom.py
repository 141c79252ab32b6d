"""Reading an image's distributions from its layers, and what the document must list."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rl_local import sbom
from rl_local.errors import LocalError

SITE = "opt/venv/lib/python3.11/site-packages"


def tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


def metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n".encode()


LAYERS = [
    gzip.compress(
        tar(
            {
                f"{SITE}/torch-2.0.dist-info/METADATA": metadata("torch", "2.0"),
                f"{SITE}/torch-2.0.dist-info/licenses/LICENSE": b"text",
                f"{SITE}/old_one-1.dist-info/METADATA": metadata("old.one", "1"),
                f"{SITE}/torch/__init__.py": b"",
            }
        )
    ),
    tar(
        {
            f"{SITE}/.wh.old_one-1.dist-info": b"",
            f"{SITE}/PyYAML-6.dist-info/METADATA": metadata("PyYAML", "6"),
        }
    ),
]


def docker_archive(path: Path) -> Path:
    names = [f"{number}/layer.tar" for number in range(len(LAYERS))]
    manifest = json.dumps([{"Config": "c", "RepoTags": [], "Layers": names}]).encode()
    path.write_bytes(tar({"manifest.json": manifest, **dict(zip(names, LAYERS, strict=True))}))
    return path


def oci_archive(path: Path) -> Path:
    blobs = {f"blobs/sha256/{number}": layer for number, layer in enumerate(LAYERS)}
    layers = [{"digest": f"sha256:{number}"} for number in range(len(LAYERS))]
    blobs["blobs/sha256/m"] = json.dumps({"layers": layers}).encode()
    index = json.dumps({"manifests": [{"digest": "sha256:m"}]}).encode()
    path.write_bytes(tar({"index.json": index, **blobs}))
    return path


@pytest.mark.parametrize("make", [docker_archive, oci_archive])
def test_distributions_are_those_that_the_last_layer_leaves(make: Any, tmp_path: Path) -> None:
    versions = sbom.distributions(make(tmp_path / "image.tar"), tmp_path / "site")
    assert versions == {"torch": "2.0", "pyyaml": "6"}
    folders = {path.name for path in (tmp_path / "site").iterdir()}
    assert folders == {"torch-2.0.dist-info", "PyYAML-6.dist-info"}
    assert (tmp_path / "site/torch-2.0.dist-info/licenses/LICENSE").read_bytes() == b"text"


def test_what_is_no_image_of_ours_is_named(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(tar({"other": b""}))
    with pytest.raises(LocalError, match="neither manifest"):
        sbom.distributions(path, tmp_path)
    path.write_bytes(tar({"manifest.json": b'[{"Layers": []}]'}))
    with pytest.raises(LocalError, match="no Python distribution"):
        sbom.distributions(path, tmp_path)


def test_a_document_without_an_installed_distribution_is_refused() -> None:
    document = {"components": [{"name": "Py_YAML", "version": "6"}]}
    sbom.check(document, {"py-yaml": "6"})
    with pytest.raises(LocalError, match="lacks py-yaml, torch"):
        sbom.check(document, {"py-yaml": "7", "torch": "2.0"})
