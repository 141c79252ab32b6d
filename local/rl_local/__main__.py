"""The command line: ``python3 -m rl_local up``, ``down``, ``images`` and the rest."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType

from rl_local import addons, cluster, progress
from rl_local.build import binaries, image_builds, images
from rl_local.errors import LocalError, sentence, tail
from rl_local.layout import Layout
from rl_local.system import debian


def main() -> int:
    """Run one command; return the exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    arguments = _parser().parse_args()
    command: Callable[[Layout, argparse.Namespace], None] = arguments.run
    layout = Layout.from_environment()
    try:
        command(layout, arguments)
    except LocalError as error:
        progress.ENDING.set()
        print(f"rl_local {arguments.command}: {error}", file=sys.stderr)
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        progress.ENDING.set()
        message = sentence(error, layout.cache, layout.state)
        print(f"rl_local {arguments.command}: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.ENDING.set()
        print(
            f"rl_local {arguments.command}: interrupted; run it again to continue", file=sys.stderr
        )
        return 130
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _up(layout: Layout, arguments: argparse.Namespace) -> None:
    names = list(images.IMAGES) if arguments.all_images else arguments.images
    print(json.dumps(cluster.up(layout, names)))


def _down(layout: Layout, _arguments: argparse.Namespace) -> None:
    cluster.down(layout)


def _images(layout: Layout, arguments: argparse.Namespace) -> None:
    if bool(arguments.names) == arguments.all:
        raise LocalError(f"name images or use --all; known images: {', '.join(images.IMAGES)}")
    wanted = images.select(list(images.IMAGES) if arguments.all else arguments.names)
    debian.ensure(layout)
    cluster.ensure_registry(layout)
    image_builds.tidy(layout)
    print(json.dumps(image_builds.ImageBuilder(layout).push_all(wanted)))


def _packages(layout: Layout, arguments: argparse.Namespace) -> None:
    debian.install(layout, arguments.names)


def _kubeconfig(layout: Layout, _arguments: argparse.Namespace) -> None:
    if not layout.kubeconfig.exists():
        raise LocalError(f"no cluster in {layout.state}; start it with `up`")
    print(layout.kubeconfig)


def _bin(layout: Layout, arguments: argparse.Namespace) -> None:
    print(binaries.tool(layout, arguments.name))


def _logs(layout: Layout, arguments: argparse.Namespace) -> None:
    places = {path.stem: path for path in layout.logs.glob("*.log")}
    places |= {path.stem: path for path in (layout.state / "logs").glob("*.log")}
    if arguments.name not in places:
        raise LocalError(f"no log {arguments.name!r}; known logs: {', '.join(sorted(places))}")
    print(tail(places[arguments.name], arguments.lines))


def _status(layout: Layout, _arguments: argparse.Namespace) -> None:
    lines = list(cluster.status(layout))
    print("\n".join(lines) or "nothing is running")


def _recycle(layout: Layout, _arguments: argparse.Namespace) -> None:
    print(json.dumps(addons.recycle_volumes(layout)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rl_local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, run: Callable[..., None], about: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about, description=about)
        command.set_defaults(run=run)
        return command

    start = add(
        "up", _up, "Start the cluster, and print the references of the named images as JSON."
    )
    start.add_argument(
        "--images",
        nargs="*",
        default=["base"],
        metavar="NAME",
        help="images to build and push while the cluster starts",
    )
    start.add_argument("--all-images", action="store_true", help="build and push every image")
    add("down", _down, "Stop and remove the cluster; caches are kept.")
    make = add(
        "images",
        _images,
        "Push images to the local registry; print their references by name as JSON.",
    )
    make.add_argument("names", nargs="*", metavar="NAME", help="names of images")
    make.add_argument("--all", action="store_true", help="build and push every image")
    add("kubeconfig", _kubeconfig, "Print the path of the cluster's kubeconfig.")
    program = add("bin", _bin, "Print the path of a program; build it if it is missing.")
    program.add_argument("name", help="kubectl, helm, etcd, …")
    packages = add("packages", _packages, "Install those of the Debian packages that are missing.")
    packages.add_argument("names", nargs="+", metavar="NAME")
    log = add("logs", _logs, "Print the last lines of the log of a process or a build.")
    log.add_argument("name")
    log.add_argument("--lines", type=int, default=200)
    add("status", _status, "Print a line for each process of the cluster.")
    add(
        "recycle-volumes",
        _recycle,
        "Empty released volumes and make them available again.",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
