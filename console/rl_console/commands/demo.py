"""``demo``: what ``make demo`` calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def demo(
    invocation: Invocation,
    *,
    images: Annotated[Path, typer.Option(help="JSON file: image name to image reference.")],
    cache: Annotated[
        Path, typer.Option(help="Folder that keeps the model and the data between demos.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the results to.")] = Path("out"),
    storage_class: Annotated[str, typer.Option(help="StorageClass of the stores' volumes.")] = "",
    started_at: Annotated[
        float | None, typer.Option(help="Unix time at which the demo began.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only check that no release of somebody else is in the way."),
    ] = False,
) -> None:
    """Install everything and run the example job.

    It shows what the model has learned.
    """
    from rich.console import Console

    from rl_console.demo.command import run_demo
    from rl_console.demo.release import read_own
    from rl_console.demo.settings import DemoSettings, read_images

    settings = DemoSettings(
        tools=invocation.tools,
        checkout=Path.cwd(),
        images={} if check else read_images(images),
        cache=cache,
        out=out,
        storage_class=storage_class,
    )
    if check:
        read_own(settings)
        return
    run_demo(settings, invocation.cluster(), Console(), started_at=started_at)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add(app, demo)
