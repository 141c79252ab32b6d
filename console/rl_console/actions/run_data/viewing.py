"""Opens the data of a job's run for a command."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from rl_console.invocation import Invocation
from rl_console.queries.cluster_source import ClusterSource
from rl_console.queries.run_data import RunData


@contextlib.contextmanager
def viewed(invocation: Invocation, job: str, *, operator_namespace: str) -> Iterator[RunData]:
    """The data of a job's run, with the rights of the kubeconfig's user.

    Raises:
        ConsoleError: the job cannot be read.
    """
    cluster = invocation.cluster()
    source = ClusterSource(cluster, invocation.tools, operator_namespace=operator_namespace)
    with contextlib.closing(source):
        namespace = cluster.default_namespace
        source.job(namespace, job)  # else a missing job is named by its data
        yield RunData(source, namespace, job, cluster.options(namespace))


def short(rollout: str, run: str) -> str:
    """An id without the run's in front; commands take it in this form as well."""
    return rollout.removeprefix(f"{run}.")


def values_of(answer: BaseModel) -> dict[str, Any]:
    """An answer for programs; numbers that are not finite, which JSON does not know, are null."""
    values: dict[str, Any] = json.loads(answer.model_dump_json())
    return values
