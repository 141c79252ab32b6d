"""``scale`` and ``drain``: the sampler pods of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from rl_console.invocation import Invocation, add


def scale(
    invocation: Invocation,
    job: str,
    replicas: Annotated[int, typer.Argument(min=0, help="Wanted number of sampler pods.")],
    *,
    group: Annotated[
        str, typer.Option(help="Group of samplers; needed if the job has several.")
    ] = "",
) -> None:
    """Set the number of sampler pods of a job's group."""
    from rl_console.actions.sampler_pods import scale_group

    cluster = invocation.cluster()
    print(scale_group(cluster, cluster.default_namespace, job, group=group, replicas=replicas))


def drain(
    invocation: Invocation,
    job: str,
    *,
    pod: Annotated[list[str] | None, typer.Option(help="Sampler pod; may be repeated.")] = None,
    node: Annotated[str, typer.Option(help="All sampler pods of the job on this node.")] = "",
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for the disruption budget.")
    ] = 300.0,
) -> None:
    """Evict sampler pods, which hand back their work.

    Others take their place. The disruption budget is respected.
    """
    from rl_console.actions.sampler_pods import drain_pods

    cluster = invocation.cluster()
    namespace = cluster.default_namespace
    for line in drain_pods(cluster, namespace, job, pods=pod or [], node=node, timeout=timeout):
        print(line, flush=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add(app, scale, examples=["scale gsm8k 4", "scale gsm8k 2 --group judge"])
    add(app, drain, examples=["drain gsm8k --pod gsm8k-main-7c9d-x1", "drain gsm8k --node gpu-3"])
