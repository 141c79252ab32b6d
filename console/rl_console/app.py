"""``kubectl rl``: follow a job, report on a finished one, plan its memory, run the demo."""

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
from rl_console.plan import plan
from rl_console.report import draw, read_metrics, read_report, table
from rl_console.session import Session, print_failure
from rl_console.stores import bucket
from rl_console.tools import Tools
from rl_contracts.errors import RLError

FAILED = 1
app = typer.Typer(name="kubectl-rl", no_args_is_help=True, add_completion=False)

Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", help="Namespace of the job. Default: that of the context."),
]


@app.callback()
def connect(
    context: typer.Context,
    *,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig file. Default: $KUBECONFIG or ~/.kube/config.")
    ] = None,
    kube_context: Annotated[
        str | None, typer.Option("--context", help="Kubeconfig context to use.")
    ] = None,
    kubectl: Annotated[
        str, typer.Option(envvar="KUBECTL", help="kubectl program to run.")
    ] = "kubectl",
    helm: Annotated[str, typer.Option(envvar="HELM", help="helm program to run.")] = "helm",
) -> None:
    """Watch RL post-training jobs on Kubernetes and report on them."""
    context.obj = Tools(kubectl=kubectl, helm=helm, kubeconfig=kubeconfig, context=kube_context)


def _cluster(tools: Tools) -> Cluster:
    return Cluster.connect(tools.kubeconfig, context=tools.context)


@app.command()
def follow(
    context: typer.Context,
    job: str,
    *,
    namespace: Namespace = "",
    timeout: Annotated[
        float, typer.Option(help="Stop watching after this many seconds.")
    ] = 86400.0,
    patience: Annotated[
        float, typer.Option(help="Exit after the job has been Stalled for this many seconds.")
    ] = 60.0,
) -> None:
    """Show a job until it ends. The exit code is 0 only if the job completed."""
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
    out: Annotated[Path, typer.Option(help="PNG file to write the reward curve to.")] = Path(
        "reward.png"
    ),
) -> None:
    """Print the evaluations and final model of a finished job, and draw its reward curve."""
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


@app.command("plan")
def show_plan(
    *,
    manifest: Annotated[Path, typer.Option("--filename", "-f", help="Manifest with RLJobs.")],
    config: Annotated[Path, typer.Option(help="config.json of the model.")],
    device_gib: Annotated[float, typer.Option(min=1, help="Memory of one GPU in GiB.")] = 80.0,
) -> None:
    """Show what a job needs of each GPU, by formula. Asks no cluster."""
    console = Console()
    for line in plan(manifest, config, device_gib=device_gib):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def demo(
    context: typer.Context,
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
) -> None:
    """Install everything, run the example job and show what the model learned."""
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
    """Run the command line; print a failure with its remedy and log, and exit with 1."""
    console = Console(stderr=True)
    try:
        app()
    except StageFailedError as failure:
        print_failure(console, failure)
        sys.exit(FAILED)
    except RLError as error:
        console.print(f"FAILED: {error}", style="bold red", markup=False, soft_wrap=True)
        sys.exit(FAILED)
