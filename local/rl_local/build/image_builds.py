"""Builds images with buildah for the local registry, unless it has them already."""

from __future__ import annotations

import http.client
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rl_local import progress
from rl_local.build import binaries, images, pip, rootfs
from rl_local.build.images import Image
from rl_local.layout import IMAGE_PREFIX, REGISTRY, REGISTRY_PORT, Layout, locked, try_lock
from rl_local.system import scratch

ACCEPT = "application/vnd.oci.image.manifest.v1+json"
# A fixed time for every file of a context, so that a fresh copy hits buildah's layer cache.
CONTEXT_TIME = 946684800


@dataclass
class ImageBuilder:
    """Builds images for the local registry.

    Attributes:
        layout: paths of the local cluster.
        tags: tags computed so far, by image name.
    """

    layout: Layout
    tags: dict[str, str] = field(default_factory=dict)

    def push_all(self, wanted: Iterable[Image]) -> dict[str, str]:
        """Build and push the images that the registry lacks; return references by name."""
        with locked(self.layout, "buildah", shared=True):
            return {image.name: self._ensure_pushed(image) for image in wanted}

    def reference(self, image: Image) -> str:
        """Reference of the image, with the tag of its current content."""
        return f"{IMAGE_PREFIX}/{image.name}:{self._tag(image)}"

    def _ensure_pushed(self, image: Image) -> str:
        reference = self.reference(image)
        if in_registry(reference):
            return reference
        with locked(self.layout, f"image-{image.name}"):
            if not in_registry(reference):
                self._ensure_built(image)
                self._push(image, reference)
        return reference

    def _tag(self, image: Image) -> str:
        if image.name not in self.tags:
            base = self._tag(images.IMAGES[image.base]) if image.base else ""
            text = (self.layout.root / image.dockerfile).read_text()
            self.tags[image.name] = images.tag(text, self._context(image), base)
        return self.tags[image.name]

    def _context(self, image: Image) -> Mapping[str, Path]:
        return images.context(self.layout.root, image, self._artifact)

    def _artifact(self, name: str) -> Path:
        if name == "rootfs.tar":
            return rootfs.ensure(self.layout)
        return binaries.ensure(self.layout, name)

    def _local(self, image: Image) -> str:
        return f"localhost/rl-operator/{image.name}:{self._tag(image)}"

    def _ensure_built(self, image: Image) -> None:
        """Provide the image in buildah's storage: pull it from our registry or build it."""
        if image.base:
            base = images.IMAGES[image.base]
            with locked(self.layout, f"image-{base.name}"):
                self._ensure_built(base)
        listed = buildah_output(
            self.layout, "images", "--noheading", "--format", "{{.Name}}:{{.Tag}}"
        )
        if self._local(image) in listed.splitlines():
            return
        ours = self.reference(image)
        if in_registry(ours):
            self._buildah(image, "pull", ["pull", "--tls-verify=false", f"docker://{ours}"])
            buildah_output(self.layout, "tag", ours, self._local(image))
            buildah_output(self.layout, "rmi", ours)
            return
        self._build(image)

    def _build(self, image: Image) -> None:
        with scratch.folder(self.layout, f"context-{image.name}") as work:
            stage(self._context(image), work / "context")
            dockerfile = self.layout.root / image.dockerfile
            argv = ["bud", "--layers", "--network", "host", "--format", "oci", "--pull-never"]
            argv += ["--tag", self._local(image), "--file", str(dockerfile)]
            if image.base:
                argv += ["--build-arg", f"BASE_IMAGE={self._local(images.IMAGES[image.base])}"]
            for volume in pip.volumes(work / "pip.conf", self.layout.cache / "pip"):
                argv += ["--volume", volume]
            self._buildah(image, "build", [*argv, str(work / "context")])
        self._forget_older(image)

    def _forget_older(self, image: Image) -> None:
        """Remove earlier versions of the image; layers that other images use stay."""
        listed = buildah_output(
            self.layout, "images", "--noheading", "--format", "{{.Name}}:{{.Tag}}"
        )
        name = self._local(image).rpartition(":")[0]
        for line in listed.splitlines():
            if line.rpartition(":")[0] == name and line != self._local(image):
                buildah_output(self.layout, "rmi", line)

    def _push(self, image: Image, reference: str) -> None:
        argv = [
            "push",
            "--tls-verify=false",
            "--compression-format",
            "zstd",
            self._local(image),
            f"docker://{reference}",
        ]
        self._buildah(image, "push", argv)

    def _buildah(self, image: Image, verb: str, arguments: list[str]) -> None:
        label, log = (
            f"{verb} image {image.name}",
            self.layout.logs / f"image-{image.name}-{verb}.log",
        )
        progress.run(
            ["nice", *buildah(self.layout), *arguments], label=label, log=log, timeout=3600
        )
        progress.say(f"{label}: done")


def buildah(layout: Layout) -> list[str]:
    """The buildah command with separate storage."""
    layout.buildah_run.mkdir(parents=True, exist_ok=True)
    storage = ["--root", str(layout.cache / "buildah"), "--runroot", str(layout.buildah_run)]
    return ["buildah", *storage, "--storage-driver", "overlay"]


def buildah_output(layout: Layout, *arguments: str) -> str:
    """Run a short buildah command and return what it printed."""
    return progress.output([*buildah(layout), *arguments], timeout=120)


def in_registry(reference: str) -> bool:
    """Whether the local registry holds the image ``localhost:5000/<repository>:<tag>``."""
    repository, _, tag = reference.removeprefix(f"{REGISTRY}/").rpartition(":")
    connection = http.client.HTTPConnection("127.0.0.1", REGISTRY_PORT, timeout=10)
    try:
        connection.request("HEAD", f"/v2/{repository}/manifests/{tag}", headers={"Accept": ACCEPT})
        return connection.getresponse().status == 200
    finally:
        connection.close()


def stage(files: Mapping[str, Path], folder: Path) -> None:
    """Copy a build context into ``folder`` with fixed modes and times, for the layer cache."""
    folder.mkdir(parents=True)
    for name, source in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith(images.ARTIFACTS):
            os.link(source, target)
        else:
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
        os.utime(target, (CONTEXT_TIME, CONTEXT_TIME))
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        path.chmod(0o755)
        os.utime(path, (CONTEXT_TIME, CONTEXT_TIME))


def tidy(layout: Layout) -> None:
    """Remove leftovers of interrupted builds, unless a build is running."""
    held = try_lock(layout, "buildah")
    if held is None:
        return
    with held:
        if buildah_output(layout, "containers", "--quiet").strip():
            buildah_output(layout, "rm", "--all")
        buildah_output(layout, "rmi", "--prune")
        scratch.remove_stale(layout)
