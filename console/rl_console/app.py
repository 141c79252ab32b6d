"""``kubectl rl``: follow a job, report on a finished one, run the demo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rl_console.demo.command import run_demo
from rl_console.demo.settings import DemoSettings, read_images
from rl_console.errors import StageFailedError
from rl_console.follow import Limits
from rl_console.kube import Cluster
from rl_console.report import draw, read_metrics, read_report, table
from rl_console.session import Session, print_failure
from rl_console.stores import bucket
from rl_console.tools import Tools
from rl_contracts.errors import RLError

FAILED = 1
app = typer.Typer(name="kubectl-rl", no_args_is_help=True, add_completion=False)

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Default: the one of the kubeconfig's context.")
]


@app.callback()
def connect(
    context: typer.Context,
    *,
    kubeconfig: Annotated[Path | None, typer.Option(help="Default: kubectl's own.")] = None,
    kube_context: Annotated[
        str | None, typer.Option("--context", help="Of the kubeconfig.")
    ] = None,
    kubectl: Annotated[str, typer.Option(envvar="KUBECTL", help="Path of kubectl.")] = "kubectl",
    helm: Annotated[str, typer.Option(envvar="HELM", help="Path of helm.")] = "helm",
) -> None:
    """Look at RL post-training runs on Kubernetes."""
    context.obj = Tools(kubectl=kubectl, helm=helm, kubeconfig=kubeconfig, context=kube_context)


def _cluster(tools: Tools) -> Cluster:
    return Cluster.connect(tools.kubeconfig, context=tools.context)


@app.command()
def follow(
    context: typer.Context,
    job: str,
    *,
    namespace: Namespace = "",
    timeout: Annotated[float, typer.Option(help="Seconds after which to give up.")] = 86400.0,
    patience: Annotated[float, typer.Option(help="Seconds for which a stall is borne.")] = 60.0,
) -> None:
    """Show a job until it has ended; the exit code is 0 only when it is complete."""
    cluster = _cluster(context.obj)
    session = Session(
        cluster=cluster,
        console=Console(),
        namespace=namespace or cluster.default_namespace,
        job=job,
    )
    ending = session.follow(Limits(total_seconds=timeout, stalled_seconds=patience))
    if not ending.succeeded:
        raise session.explain(ending)


@app.command()
def report(
    context: typer.Context,
    job: str,
    *,
    namespace: Namespace = "",
    out: Annotated[Path, typer.Option(help="Receives the reward curve.")] = Path("reward.png"),
) -> None:
    """Accuracy, reward curve and final model of a finished job."""
    cluster = _cluster(context.obj)
    console = Console()
    finished = cluster.job(namespace or cluster.default_namespace, job)
    with bucket(cluster, context.obj, finished.namespace) as objects:
        prefix = f"{objects.prefix}runs/{finished.run}/"
        wanted = read_report(objects, prefix)
        metrics = read_metrics(objects, prefix)
    draw(metrics, wanted.evaluations, out)
    console.print(table(wanted))
    console.print(f"reward curve: {out}\nfinal model:  {wanted.final_model}", soft_wrap=True)


@app.command()
def demo(
    context: typer.Context,
    *,
    images: Annotated[Path, typer.Option(help="JSON: image references by name.")],
    cache: Annotated[Path, typer.Option(help="Keeps the model and the data.")],
    out: Annotated[Path, typer.Option(help="Receives the results.")] = Path("out"),
    storage_class: Annotated[str, typer.Option(help="Of the stores' volumes.")] = "",
    started_at: Annotated[float | None, typer.Option(help="Unix time: when it began.")] = None,
) -> None:
    """Install everything, run the example and show what it has learned."""
    settings = DemoSettings(
        tools=context.obj,
        checkout=Path.cwd(),
        images=read_images(images),
        cache=cache,
        out=out,
        storage_class=storage_class,
    )
    run_demo(settings, _cluster(context.obj), Console(), started_at=started_at)


def main() -> None:
    """Run; a failure is told with condition, remedy and log, and ends with 1."""
    console = Console(stderr=True)
    try:
        app()
    except StageFailedError as failure:
        print_failure(console, failure)
        sys.exit(FAILED)
    except RLError as error:
        console.print(f"FAILED: {error}", style="bold red", markup=False, soft_wrap=True)
        sys.exit(FAILED)
