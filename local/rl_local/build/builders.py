"""Command lines that build and push an image with docker, podman, nerdctl or buildah."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_local.errors import LocalError

PROBES = {
    "docker": ("docker", "info"),
    "podman": ("podman", "info"),
    "nerdctl": ("nerdctl", "info"),
    "buildah": ("buildah", "info"),
}
"""A command of each builder that succeeds if it can build, in the order of preference."""
HERE = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Step:
    """One command.

    Attributes:
        argv: the program and its arguments.
        may_fail: the result does not matter: removing what may not exist.
    """

    argv: tuple[str, ...]
    may_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One image to build.

    Attributes:
        reference: ``HOST/PREFIX/NAME:TAG``.
        dockerfile: path of the Dockerfile.
        context: folder that the Dockerfile's paths start from.
        platforms: such as ``linux/arm64``; empty: this machine's.
        options: more arguments of the builder's ``build`` command.
        push: whether the image is pushed too.
    """

    reference: str
    dockerfile: Path
    context: Path
    platforms: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    push: bool = True

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments that every builder takes, without the name of the result."""
        platforms = ("--platform", ",".join(self.platforms)) if self.platforms else ()
        return (*platforms, "--file", str(self.dockerfile), *self.options)


def choose(wanted: str, works: Callable[[Sequence[str]], bool]) -> str:
    """The builder to use.

    Args:
        wanted: a name, or empty for the first that works.
        works: whether a command exists and succeeds.

    Raises:
        LocalError: ``wanted`` is unknown, or no builder works.
    """
    if wanted and wanted not in PROBES:
        raise LocalError(f"no builder {wanted!r}; BUILDER is one of {', '.join(PROBES)}")
    for name in [wanted] if wanted else PROBES:
        if works(PROBES[name]):
            return name
    tried = ", ".join(f"`{' '.join(PROBES[name])}`" for name in ([wanted] if wanted else PROBES))
    raise LocalError(
        f"no builder of images works here: {tried} failed. Start Docker, or install podman, nerdctl"
        " or buildah. If the images are in a registry already, `make demo … PUSHED=1` builds none"
    )


def steps(builder: str, build: Build) -> list[Step]:
    """The commands that build the image and, if wanted, push it.

    Raises:
        LocalError: the builder cannot keep an image of several platforms without pushing it.
    """
    several = len(build.platforms) > 1
    if several and not build.push and builder in ("docker", "nerdctl"):
        raise LocalError(
            f"{builder} keeps an image of several platforms only in a registry: leave out PUSH=0,"
            " or name one platform in PLATFORMS"
        )
    if builder == "docker":
        return _docker(build, several=several)
    if builder == "nerdctl":
        return _nerdctl(build, several=several)
    return _with_manifest(builder, build) if several else _plain(builder, build)


def _docker(build: Build, *, several: bool) -> list[Step]:
    tagged = (*build.arguments, "--tag", build.reference)
    if several:
        return [Step(("docker", "buildx", "build", *tagged, "--push", str(build.context)))]
    made = Step(("docker", "build", *tagged, str(build.context)))
    return [made, *_pushed(build, Step(("docker", "push", build.reference)))]


def _nerdctl(build: Build, *, several: bool) -> list[Step]:
    made = ("nerdctl", "build", *build.arguments, "--tag", build.reference, str(build.context))
    whole = ("--all-platforms",) if several else ()
    return [Step(made), *_pushed(build, Step(("nerdctl", "push", *whole, build.reference)))]


def _plain(builder: str, build: Build) -> list[Step]:
    tagged = (*build.arguments, "--tag", build.reference)
    made = Step((builder, "build", *_layers(builder), *tagged, str(build.context)))
    pushed = (builder, "push", *_tls(build), build.reference, f"docker://{build.reference}")
    return [made, *_pushed(build, Step(pushed))]


def _with_manifest(builder: str, build: Build) -> list[Step]:
    """An index of several platforms; one of an earlier build would keep its images in it."""
    named = (*build.arguments, "--manifest", build.reference)
    target = f"docker://{build.reference}"
    pushed = (builder, "manifest", "push", "--all", *_tls(build), build.reference, target)
    return [
        Step((builder, "manifest", "rm", build.reference), may_fail=True),
        Step((builder, "build", *_layers(builder), *named, str(build.context))),
        *_pushed(build, Step(pushed)),
    ]


def _layers(builder: str) -> tuple[str, ...]:
    """Buildah caches layers only on request."""
    return ("--layers",) if builder == "buildah" else ()


def _tls(build: Build) -> tuple[str, ...]:
    """A registry on this machine speaks HTTP; docker and nerdctl know that by themselves."""
    host = re.sub(r":\d+$", "", build.reference.partition("/")[0])
    return ("--tls-verify=false",) if host in HERE else ()


def _pushed(build: Build, step: Step) -> list[Step]:
    return [step] if build.push else []
