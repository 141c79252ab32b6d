"""Builds the project's images for a registry of yours: ``make images REGISTRY=…``.

It needs Python and a builder of images, on any system, without root.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rl_local.build import builders
from rl_local.errors import LocalError
from rl_local.layout import ROOT

CHART = ROOT / "charts/rl-operator/Chart.yaml"
PROBE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class PublicImage:
    """An image that anyone can build.

    Attributes:
        repository: the last part of its name in the registry.
        component: the chart's name for it, in ``images``.
        dockerfile: its path in the checkout.
    """

    repository: str
    component: str
    dockerfile: str


IMAGES = {
    image.repository: image
    for image in (
        PublicImage("operator", "operator", "operator/Dockerfile"),
        PublicImage("sampler", "sampler", "sampler_image/Dockerfile"),
        PublicImage("trainer", "trainer", "trainer_image/Dockerfile"),
        PublicImage("engine-cpu", "engine", "sampler_image/engine-cpu.Dockerfile"),
        PublicImage("store", "store", "local/images/from-source/store.Dockerfile"),
        PublicImage("minio", "minio", "local/images/from-source/minio.Dockerfile"),
    )
}
"""By repository. On GPUs the engine is SGLang's own image, so none is built for them."""


def version() -> str:
    """The chart's ``appVersion``: the tag that the chart's default references have."""
    stated = re.search(r"^appVersion: *\"?([^\"\s]+)", CHART.read_text(), re.MULTILINE)
    assert stated is not None
    return stated[1]


def select(names: Sequence[str]) -> list[PublicImage]:
    """The images of these repositories; all of them for no name.

    Raises:
        LocalError: a name is unknown.
    """
    unknown = [name for name in names if name not in IMAGES]
    if unknown:
        raise LocalError(f"no image {', '.join(unknown)}; IMAGES are {', '.join(IMAGES)}")
    return [IMAGES[name] for name in names or IMAGES]


def references(images: Iterable[PublicImage], *, registry: str, tag: str) -> dict[str, str]:
    """References by the chart's component.

    Raises:
        LocalError: the registry is no ``HOST/PREFIX``.
    """
    prefix = registry.rstrip("/")
    if not prefix or "://" in prefix:
        raise LocalError(
            f"REGISTRY is {registry!r}; it must say where images go, as in ghcr.io/you/rl-operator"
        )
    return {image.component: f"{prefix}/{image.repository}:{tag}" for image in images}


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, push, and print the references as JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        images = select(options.names)
        named = references(images, registry=options.registry, tag=options.tag or version())
        if not options.pushed:
            _build(images, named, options)
    except LocalError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(named))
    return 0


def _build(
    images: Sequence[PublicImage], named: dict[str, str], options: argparse.Namespace
) -> None:
    builder = builders.choose(options.builder, works)
    for image in images:
        build = builders.Build(
            reference=named[image.component],
            dockerfile=ROOT / image.dockerfile,
            context=ROOT,
            platforms=tuple(filter(None, options.platforms.split(","))),
            options=tuple(shlex.split(options.options)),
            push=not options.no_push,
        )
        for step in builders.steps(builder, build):
            _run(step)


def works(argv: Sequence[str]) -> bool:
    """Whether a command exists and succeeds."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _run(step: builders.Step) -> None:
    """Print a command and run it; its output goes to standard error, where the progress is.

    Raises:
        LocalError: it failed although it must not.
    """
    line = shlex.join(step.argv)
    print(f"+ {line}", file=sys.stderr, flush=True)
    quiet = subprocess.DEVNULL if step.may_fail else sys.stderr
    done = subprocess.run(step.argv, stdout=quiet, stderr=quiet, check=False)
    if done.returncode and not step.may_fail:
        raise LocalError(f"`{line}` ended with status {done.returncode}; its output is above")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rl_local.publish", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(IMAGES)}")
    parser.add_argument("--registry", required=True, metavar="HOST/PREFIX")
    parser.add_argument("--tag", default="", help="default: the chart's version")
    parser.add_argument("--platforms", default="", help="such as linux/amd64,linux/arm64")
    parser.add_argument("--builder", default="", help=" or ".join(builders.PROBES))
    parser.add_argument("--options", default="", help="more arguments of the build command")
    parser.add_argument("--no-push", action="store_true", help="build only")
    parser.add_argument("--pushed", action="store_true", help="print the references only")
    return parser


if __name__ == "__main__":
    sys.exit(main())
