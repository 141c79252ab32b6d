"""``download``, ``promote`` and ``serve``: models of a job outside of its training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_console.errors import UsageError
from rl_console.invocation import Invocation, add
from rl_console.names import require_job, require_name

Version = Annotated[
    int | None,
    typer.Argument(min=1, help="Published version. Default: the final model, or the newest."),
]
Image = Annotated[str, typer.Option(help="Sampler image of the pod. Default: the job's.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds until it must be complete.")]


def download(
    invocation: Invocation,
    job: str,
    version: Version = None,
    *,
    to: Annotated[Path | None, typer.Option(help="Folder. Default: JOB-VERSION here.")] = None,
    merged: Annotated[
        bool, typer.Option("--merged", help="Merge an adapter into its model: a whole model.")
    ] = False,
    image: Image = "",
    timeout: Timeout = 3600.0,
) -> None:
    """Download a model of a job.

    A pod in the namespace reads it from the bucket and sends it through a port-forward. The folder
    has Hugging Face layout; an adapter has PEFT's, unless --merged. After an interruption, run the
    command again: it goes on where it stopped.
    """
    from rl_console.actions.models.downloading import download_model

    download_model(
        invocation, job, version=version, merged=merged, to=to, image=image, seconds=timeout
    )


def promote(
    invocation: Invocation,
    job: str,
    name: Annotated[str, typer.Argument(help="Name of the promoted model.")],
    version: Version = None,
    *,
    image: Image = "",
    timeout: Timeout = 3600.0,
) -> None:
    """Copy a model of a job to a folder that stays.

    A pod in the namespace writes it to promoted/NAME in the bucket, which retention does not
    delete, and prints the URI, which another RLJob may name as its model. Adapters are merged.
    """
    from rl_console.actions.models.promoting import promote_model

    promote_model(invocation, job, name, version=version, image=image, seconds=timeout)


def serve(
    invocation: Invocation,
    job: str,
    version: Version = None,
    *,
    name: Annotated[str, typer.Option(help="Name of the endpoint. Default: JOB-serve.")] = "",
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Number of pods. Default: as before, or 1.")
    ] = None,
    group: Annotated[
        str,
        typer.Option(
            help="Use the engine options of this group of samplers. Default: the first group."
        ),
    ] = "",
    api_key_secret: Annotated[
        str | None,
        typer.Option(
            help="Secret with the key `api-key`, which requests must carry; '' asks for none. "
            "Default: as before, or none."
        ),
    ] = None,
    image: Annotated[str, typer.Option(help="Sampler image. Default: the job's.")] = "",
    engine_image: Annotated[str, typer.Option(help="Engine image. Default: the job's.")] = "",
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--no-keep",
            help="Keep the endpoint when the job is deleted. Default: as before, or no.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the objects only.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Delete the endpoint.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until it answers; 0: do not wait.")
    ] = 1800.0,
) -> None:
    """Serve a model of a job in the cluster.

    Makes a Deployment, a Service and a NetworkPolicy that admits pods of the namespace. Adapters
    are merged into their model. The endpoint has OpenAI's API. Run the command again to
    change it; --replicas, --api-key-secret and --keep stay as they were where they are left out.
    """
    from rl_console.actions.models.choice import Choice
    from rl_console.actions.models.endpoint import Endpoint
    from rl_console.actions.models.serving import (
        present_objects,
        print_manifests,
        serve_model,
        stop_serving,
    )

    chosen = (version, replicas, api_key_secret, keep)
    if stop and (any((dry_run, group, image, engine_image)) or chosen != (None,) * len(chosen)):
        raise UsageError(
            "--stop deletes the endpoint, whatever it serves",
            remedy="Leave out the version and all options but --name, or --stop",
        )
    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    require_job(namespace, job)
    named = require_name("endpoint", name or f"{job}-serve")
    if stop:
        for line in stop_serving(cluster, namespace, job, named):
            print(line, flush=True)
        return
    choice = Choice.of(cluster, namespace, job, version)
    present = present_objects(cluster, namespace, named, job)
    endpoint = Endpoint.changed(
        present.get("Deployment"),
        choice=choice,
        images=choice.images(sampler=image, engine=engine_image, group=group),
        name=named,
        replicas=replicas,
        group=group,
        api_key_secret=api_key_secret,
        owned=None if keep is None else not keep,
    )
    if dry_run:
        print_manifests(endpoint)
    else:
        print(serve_model(cluster, endpoint, seconds=timeout))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(app, download, examples=["download gsm8k", "download gsm8k 12 --merged --to gsm8k-12"])
    add(app, promote, examples=["promote gsm8k gsm8k-v1", "promote gsm8k gsm8k-12 12"])
    add(
        app,
        serve,
        examples=["serve gsm8k", "serve gsm8k 12 --dry-run > serve.yaml", "serve gsm8k --stop"],
    )
