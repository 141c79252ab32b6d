"""A finding of `kubectl rl doctor`, and checks that find several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rl_console.cluster.kube import Cluster
from rl_console.errors import ConsoleError, NotAllowedError

GOOD: Final = "ok"
WARNING: Final = "warning"
FAULT: Final = "fault"
UNKNOWN: Final = "unknown"
Check = Callable[[Cluster, str], "Iterator[Finding]"]
"""A check of a cluster and a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check and its result."""

    check: str
    state: str
    detail: str
    remedy: str = ""


def good(check: str, detail: str) -> Finding:
    """Nothing has to be done."""
    return Finding(check=check, state=GOOD, detail=detail)


def fault(check: str, detail: str, remedy: str) -> Finding:
    """Jobs cannot run, or not all of them."""
    return Finding(check=check, state=FAULT, detail=detail, remedy=remedy)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """Something that may be meant."""
    return Finding(check=check, state=WARNING, detail=detail, remedy=remedy)


def tried(name: str, check: Check, cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The findings of a check; one that may not be made, or fails, is a finding itself."""
    try:
        yield from check(cluster, namespace)
    except NotAllowedError:
        yield Finding(
            check=name,
            state=UNKNOWN,
            detail="you have no right to see it",
            remedy="Ask the cluster's administrator to run `kubectl rl doctor`",
        )
    except ConsoleError as error:
        yield fault(name, str(error), error.remedy)
