"""``init``, ``validate``, ``submit`` and ``diff``: manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.invocation import Invocation, add
from rl_console.tools import OPERATOR_NAMESPACE

Files = Annotated[
    list[Path],
    typer.Option("--filename", "-f", help="Manifest, folder of manifests, or - ; repeatable."),
]


def init(
    invocation: Invocation,
    name: Annotated[str, typer.Argument(help="Name of the job.")] = "",
    *,
    model: Annotated[str, typer.Option(help="hf://org/name or s3://bucket/folder.")] = "",
    train: Annotated[str, typer.Option(help="Training data: s3://… or hf://….")] = "",
    validation: Annotated[str, typer.Option(help="Data to evaluate on.")] = "",
    query: Annotated[str, typer.Option(help="Column of the question, if not `query`.")] = "",
    scorer: Annotated[
        str, typer.Option(help="Built-in scorer, e.g. Math, ExactMatch or Code.")
    ] = "",
    prompt: Annotated[str, typer.Option(help="System prompt of the agent.")] = "",
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 100,
    samplers: Annotated[int, typer.Option(min=1, help="Sampler pods.")] = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of the trainer's pod.")] = 1,
    sampler_gpus: Annotated[int, typer.Option(min=0, help="GPUs of each sampler pod.")] = 1,
    lora_rank: Annotated[
        int | None, typer.Option(min=1, help="Train an adapter of this rank.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write. Default: print it.")] = None,
) -> None:
    """Write a manifest from options, or by asking.

    On a terminal it asks for what no option says. The manifest is checked before it is written.
    """
    from rl_console.actions.initiation import Answers, ask, manifest_of, write

    answers = Answers(
        name=name,
        namespace=invocation.namespace,
        model=model,
        train=train,
        validation=validation,
        query=query,
        scorer=scorer,
        prompt=prompt,
        steps=steps,
        samplers=samplers,
        gpus=gpus,
        sampler_gpus=sampler_gpus,
        lora_rank=lora_rank,
    )
    write(manifest_of(ask(answers)), out)


def validate(
    invocation: Invocation,
    *,
    files: Files,
    server: Annotated[
        bool, typer.Option("--server", help="Ask the API server, too; nothing is created.")
    ] = False,
) -> None:
    """Check manifests as the API server does, without a cluster.

    The models and the rules are the same. What only the operator can know, such as whether the
    model exists, is checked when the job is created.
    """
    from rl_console.actions.submitting import create, report
    from rl_console.manifests.files import read_all

    documents = read_all(files)
    for line in report(documents):
        print(line)
    if server:
        ours = [document for document in documents if document.ours]
        cluster, namespace = invocation.cluster(), invocation.namespace
        for line in create(cluster, ours, namespace=namespace, dry_run=True):
            print(line)


def submit(
    invocation: Invocation,
    *,
    files: Files,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask the API server, and create nothing.")
    ] = False,
) -> None:
    """Check manifests and create their jobs and pools."""
    from rl_console.actions.submitting import create, require_valid
    from rl_console.manifests.files import read_all

    documents = read_all(files)
    require_valid(documents)
    cluster, namespace = invocation.cluster(), invocation.namespace
    for line in create(cluster, documents, namespace=namespace, dry_run=dry_run):
        print(line)


def diff(
    invocation: Invocation,
    first: Annotated[str, typer.Argument(help="Name of a job, or a manifest's file.")],
    second: Annotated[str, typer.Argument(help="Name of the other job, or its manifest's file.")],
    *,
    curve: Annotated[
        list[str] | None,
        typer.Option(help="Also compare this metric of both runs, e.g. reward_mean; repeatable."),
    ] = None,
    operator_namespace: Annotated[
        str | None,
        typer.Option(
            help=f"With --curve: namespace of the operator. Default: {OPERATOR_NAMESPACE}."
        ),
    ] = None,
) -> None:
    """Show in which options two jobs differ.

    Defaults are included. The exit code is 1 if they differ. With --curve both runs are compared
    step by step, up to the last step that both have.
    """
    from rl_console.actions.comparing import compare, specs_of
    from rl_console.errors import UsageError
    from rl_console.output import show, show_data

    if operator_namespace is not None and not curve:
        raise UsageError(
            f"--operator-namespace {operator_namespace}: no data of runs are read",
            remedy="Add --curve",
        )
    listing = compare(*specs_of(invocation, first, second))
    if curve:
        from rl_console.actions.curves import with_curves

        shown = with_curves(
            invocation,
            listing,
            (first, second),
            curve,
            operator_namespace=operator_namespace or OPERATOR_NAMESPACE,
        )
        show_data(shown, invocation.output)
    else:
        show(listing, invocation.output)
    if listing.rows:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(
        app,
        init,
        examples=[
            "init",
            "init gsm8k --model hf://Qwen/Qwen2.5-0.5B-Instruct --train hf://openai/gsm8k/main"
            " --query question --scorer Math --out job.yaml",
        ],
    )
    add(app, validate, examples=["validate -f job.yaml", "validate -f jobs/ --server"])
    add(app, submit, examples=["submit -f job.yaml -n research", "submit -f - < job.yaml"])
    add(
        app,
        diff,
        output=True,
        examples=[
            "diff gsm8k gsm8k-2",
            "diff gsm8k gsm8k-2 --curve reward_mean --curve kl",
            "diff gsm8k job.yaml -o json",
        ],
    )
