"""The images of the project, and the tag that follows from the content of each.

The Dockerfile decides what goes into an image: the files that its COPY and ADD lines name are the
whole build context. A name below ``artifacts/`` is a build result (a binary, the base file system).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_local import versions
from rl_local.errors import LocalError

ARTIFACTS = "artifacts/"
SKIPPED_NAMES = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}


@dataclass(frozen=True, slots=True)
class Image:
    """One image.

    Attributes:
        name: the last part of its reference.
        dockerfile: its path in the checkout; a build's context is the checkout's root.
        base: name of the image that the Dockerfile receives as ``BASE_IMAGE``; empty: from scratch.
    """

    name: str
    dockerfile: str
    base: str = ""


IMAGES = {
    image.name: image
    for image in (
        Image(name="base", dockerfile="local/images/base.Dockerfile"),
        Image(name="torch", dockerfile="local/images/torch.Dockerfile", base="base"),
        Image(name="engine", dockerfile="sampler_image/engine-cpu.Dockerfile", base="torch"),
        Image(name="trainer", dockerfile="trainer_image/Dockerfile", base="torch"),
        Image(name="sampler", dockerfile="sampler_image/Dockerfile", base="base"),
        Image(name="operator", dockerfile="operator/Dockerfile", base="base"),
        Image(name="store", dockerfile="local/images/store.Dockerfile"),
        Image(name="minio", dockerfile="local/images/minio.Dockerfile"),
        Image(name="pause", dockerfile="local/images/pause.Dockerfile"),
        Image(name="coredns", dockerfile="local/images/coredns.Dockerfile"),
        Image(name="training-operator", dockerfile="local/images/training-operator.Dockerfile"),
    )
}
ON_DEMAND_IMAGES = {
    image.name: image
    for image in (
        Image(name="agents-sdk", dockerfile="examples/agents-sdk/Dockerfile", base="base"),
        Image(name="verifiers", dockerfile="examples/verifiers/Dockerfile", base="base"),
        Image(
            name="agent-sandbox-controller",
            dockerfile="local/images/agent-sandbox-controller.Dockerfile",
        ),
    )
}
"""Made by name alone: of examples, which users build, and of tests."""
CLUSTER_IMAGES = ("pause", "coredns", "training-operator")


def select(names: Iterable[str]) -> list[Image]:
    """The images of these names, in the order given.

    Raises:
        LocalError: a name is unknown.
    """
    known = IMAGES | ON_DEMAND_IMAGES
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LocalError(f"no image {', '.join(unknown)}; known images: {', '.join(known)}")
    return [known[name] for name in names]


def sources(dockerfile: str, *, where: str) -> list[str]:
    """Paths in the build context that a Dockerfile's COPY and ADD lines name.

    Args:
        dockerfile: its text.
        where: its path, for messages.

    Raises:
        LocalError: a path is not plain, e.g. has a wildcard.
    """
    paths_found: list[str] = []
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        words = line.split()
        if not words or words[0].upper() not in ("COPY", "ADD"):
            continue
        flags = [word for word in words[1:] if word.startswith("--")]
        if any(flag.startswith("--from=") for flag in flags):
            continue
        paths = [word for word in words[1:] if not word.startswith("--")]
        for path in paths[:-1]:
            if re.search(r"[*?\[$\"]|://|^/|^\.\.?(/|$)", path):
                raise LocalError(
                    f"{where}: `{line.strip()}`: {path!r} must be a plain path below the"
                    " checkout, so that the image's tag can be computed from its inputs"
                )
            paths_found.append(path.rstrip("/"))
    return list(dict.fromkeys(paths_found))


def files_of(root: Path, source: str) -> dict[str, Path]:
    """Files that a path of the context names: path in the context → path on this machine.

    Raises:
        LocalError: there is no such file or folder.
    """
    start = root / source
    if start.is_file():
        return {source: start}
    if not start.is_dir():
        raise LocalError(f"{start} does not exist, but a Dockerfile copies it")
    return {
        str(path.relative_to(root)): path
        for path in sorted(start.rglob("*"))
        if path.is_file()
        and path.suffix != ".pyc"
        and SKIPPED_NAMES.isdisjoint(path.relative_to(start).parts)
    }


def context(root: Path, image: Image, artifact: Callable[[str], Path]) -> dict[str, Path]:
    """Everything that the image is built from: path in the context → path on this machine.

    Args:
        root: the checkout.
        image: the image.
        artifact: builds ``artifacts/<name>`` and returns its path.
    """
    text = (root / image.dockerfile).read_text()
    files: dict[str, Path] = {}
    for source in sources(text, where=image.dockerfile):
        if source.startswith(ARTIFACTS):
            files[source] = artifact(source.removeprefix(ARTIFACTS))
        else:
            files |= files_of(root, source)
    return files


def tag(dockerfile: str, files: Mapping[str, Path], base_tag: str) -> str:
    """A tag that changes if and only if an input of the image changes.

    Args:
        dockerfile: its text.
        files: as :func:`context` gives them. An artifact counts by the name of its file, which
            ends in its own key; any other file by its content and whether it can be executed.
        base_tag: the tag of the base image, or empty.

    Returns:
        16 hexadecimal digits.
    """
    whole = hashlib.sha256()
    for part in (str(versions.BUILD_RECIPE), dockerfile, base_tag):
        whole.update(f"{len(part)}:{part}".encode())
    for name, path in sorted(files.items()):
        if name.startswith(ARTIFACTS):
            content = path.name
        else:
            executable = bool(path.stat().st_mode & 0o100)
            content = f"{executable}:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        whole.update(f"{len(name)}:{name}:{content};".encode())
    return whole.hexdigest()[:16]
