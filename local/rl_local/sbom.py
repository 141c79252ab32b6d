"""Lists what our images hold, in CycloneDX: ``make sbom REGISTRY=… [TAG=…]``.

The distributions are read from the image itself, by their ``*.dist-info`` folders. Packages of the
base image's own package manager are not listed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from rl_local import publish, venv
from rl_local.build import builders
from rl_local.errors import LocalError
from rl_local.layout import ROOT

TOOL = "cyclonedx-bom==7.5.0"
OUT = ROOT / "out/sbom"
SAVES = {
    "docker": ("docker", "save", "--output", "{file}", "{image}"),
    "podman": ("podman", "save", "--format", "oci-archive", "--output", "{file}", "{image}"),
    "nerdctl": ("nerdctl", "save", "--output", "{file}", "{image}"),
    "buildah": ("buildah", "push", "{image}", "oci-archive:{file}"),
}
"""How each builder writes an image to a file."""
DISTRIBUTION = re.compile(r"(?:^|/)(?P<folder>[^/]+\.dist-info)/(?P<file>.+)")
DELETED = ".wh."
"""Beginning of the name of a file that says that a layer deletes another."""
PYTHON_IMAGES = ("operator", "sampler", "trainer", "engine-cpu")


def distributions(archive: Path, into: Path) -> dict[str, str]:
    """Copy the metadata of an image's Python distributions.

    Args:
        archive: an image as ``docker save`` writes it, or an OCI archive.
        into: folder that gets the ``*.dist-info`` folders.

    Returns:
        Versions by normalized name.

    Raises:
        LocalError: it is no image, or has no Python distribution.
    """
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as whole:
            for layer in _layers(whole):
                _apply(layer, files)
    except (tarfile.ReadError, gzip.BadGzipFile) as error:
        raise LocalError(
            f"{archive}: {error}. Layers must be plain or compressed with gzip"
        ) from error
    for name, data in files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    versions = dict(_name_and_version(files[name]) for name in files if name.endswith("/METADATA"))
    if not versions:
        raise LocalError(f"{archive} holds no Python distribution: is it one of our images?")
    return versions


def _layers(whole: tarfile.TarFile) -> Iterator[IO[bytes]]:
    names = set(whole.getnames())  # of files in the archive
    if "manifest.json" in names:  # docker's own form
        (image,) = _json(whole, "manifest.json")
        paths = image["Layers"]
    elif "index.json" in names:
        manifest = _json(whole, _blob(_json(whole, "index.json")["manifests"][0]["digest"]))
        paths = [_blob(layer["digest"]) for layer in manifest["layers"]]
    else:
        raise LocalError("the archive has neither manifest.json nor index.json: it is no image")
    for path in paths:
        file = whole.extractfile(path)
        assert file is not None
        yield file


def _json(whole: tarfile.TarFile, name: str) -> Any:
    file = whole.extractfile(name)
    assert file is not None
    return json.load(file)


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _apply(layer: IO[bytes], files: dict[str, bytes]) -> None:
    """Add and delete what a layer does to the files of ``*.dist-info`` folders."""
    zipped = layer.read(2) == b"\x1f\x8b"
    layer.seek(0)
    opened = gzip.GzipFile(fileobj=layer) if zipped else layer
    with tarfile.open(fileobj=opened, mode="r|") as members:
        for member in members:
            path = PurePosixPath(member.name)
            if path.name.startswith(DELETED):
                gone = path.name.removeprefix(DELETED)
                place = gone if gone.endswith(".dist-info") else f"{path.parent.name}/{gone}"
                for name in [name for name in files if f"{name}/".startswith(f"{place}/")]:
                    del files[name]
                continue
            match = DISTRIBUTION.search(member.name)
            if match is None or not member.isfile():
                continue
            file = members.extractfile(member)
            assert file is not None
            files[f"{match['folder']}/{match['file']}"] = file.read()


def _name_and_version(metadata: bytes) -> tuple[str, str]:
    text = metadata.decode(errors="replace")
    name = re.search(r"^Name: *(.+?)\s*$", text, re.MULTILINE)
    version = re.search(r"^Version: *(.+?)\s*$", text, re.MULTILINE)
    if name is None or version is None:
        raise LocalError("a *.dist-info folder of the image has no name and version")
    return normalized(name[1]), version[1]


def normalized(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check(document: dict[str, Any], installed: dict[str, str]) -> None:
    """Raise LocalError unless a document lists each installed distribution with its version."""
    listed = {normalized(each["name"]): each["version"] for each in document["components"]}
    missing = [name for name, version in installed.items() if listed.get(name) != version]
    if missing:
        raise LocalError(f"the list of components lacks {', '.join(sorted(missing))}")


def write(archive: Path, file: Path, *, tool: Path) -> int:
    """Write the document of an image's archive; returns the number of components.

    Args:
        archive: as ``distributions``.
        file: where the document goes.
        tool: the program ``cyclonedx-py``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        installed = distributions(archive, folder / "site")
        # The tool asks an interpreter for its sys.path; that of the image may not run here.
        python = folder / "python"
        python.write_text(f"#!/bin/sh\necho '{json.dumps([str(folder / 'site')])}'\n")
        python.chmod(0o755)
        file.parent.mkdir(parents=True, exist_ok=True)
        form = ("--output-format", "JSON", "--spec-version", "1.6", "--output-reproducible")
        subprocess.run(
            [str(tool), "environment", str(python), *form, "--output-file", str(file)], check=True
        )
    document = json.loads(file.read_text())
    check(document, installed)
    return len(document["components"])


def tool_of(cache: Path) -> Path:
    """The program ``cyclonedx-py``, in an environment of its own."""
    folder = venv.ensure_keyed(
        cache,
        name="venv-sbom",
        key=venv.key([TOOL], b""),
        build=lambda made: venv.install(made, [TOOL]),
    )
    return folder / "bin/cyclonedx-py"


def save(builder: str, image: str, file: Path) -> None:
    """Write an image that a builder has to a file; raises LocalError."""
    argv = [part.format(file=file, image=image) for part in SAVES[builder]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"`{' '.join(argv)}` failed: {done.stderr.strip()[-500:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``out/sbom/NAME.cdx.json`` of each image."""
    parser = argparse.ArgumentParser(prog="make sbom", description=__doc__)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--tag", default=publish.version())
    parser.add_argument("--builder", default="")
    parser.add_argument("images", nargs="*", default=list(PYTHON_IMAGES))
    given = parser.parse_args(arguments)
    try:
        builder = builders.choose(given.builder, publish.works)
        cache = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator")
        tool = tool_of(cache)
        for name in given.images or PYTHON_IMAGES:
            with tempfile.TemporaryDirectory() as folder:
                archive = Path(folder) / "image.tar"
                save(builder, f"{given.registry.rstrip('/')}/{name}:{given.tag}", archive)
                file = OUT / f"{name}.cdx.json"
                print(f"{file}: {write(archive, file, tool=tool)} components")
    except LocalError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
