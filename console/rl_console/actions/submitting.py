"""Checks manifests and creates their objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rl_console.cluster.api import ALREADY_EXISTS
from rl_console.cluster.kube import Cluster, path
from rl_console.errors import ConsoleError, RequestRefusedError, UsageError
from rl_console.manifests.checks import problems
from rl_console.manifests.files import Document
from rl_console.manifests.structure import shown
from rl_contracts.spec.resources import GROUP

PLURALS = {"RLJob": "rljobs", "SamplerPool": "samplerpools"}


class InvalidError(ConsoleError):
    """Manifests are refused; each reason has been printed."""


def problem_lines(document: Document) -> list[str]:
    """A line for each thing that is wrong with an object of ours; empty: it is valid."""
    if document.fault:
        return [document.fault]
    if not document.ours:
        return []
    place = f"{document.file}: {document.name}"
    return [f"{place}: {problem}" for problem in problems(document.manifest)]


def report(documents: Sequence[Document]) -> Iterator[str]:
    """Lines about all objects: valid, not checked, or what is wrong.

    Raises:
        InvalidError: after the last line, if anything is wrong or nothing was checked.
    """
    wrong = 0
    for document in documents:
        lines = problem_lines(document)
        wrong += bool(lines)
        yield from lines
        if not lines:
            state = "valid" if document.ours else "not checked: no RLJob or SamplerPool"
            yield f"{document.file}: {document.name}: {state}"
    _require_none(wrong, documents)
    _require_ours(documents)


def require_valid(documents: Sequence[Document]) -> None:
    """Print what is wrong on standard error; raises InvalidError if anything is."""
    refused = [lines for document in documents if (lines := problem_lines(document))]
    for line in (line for lines in refused for line in lines):
        print(line, file=sys.stderr)
    _require_none(len(refused), documents)


def _require_none(wrong: int, documents: Sequence[Document]) -> None:
    if wrong:
        raise InvalidError(
            f"{wrong} of {len(documents)} objects would be refused",
            remedy="Correct the fields above; `kubectl explain rljob.spec` describes each",
        )


def _require_ours(documents: Sequence[Document]) -> None:
    """Nothing was checked: a report without an error would be taken for a good one."""
    if any(document.ours for document in documents):
        return
    files = ", ".join(dict.fromkeys(document.file for document in documents))
    kinds = dict.fromkeys(document.manifest.get("kind") for document in documents)
    named = ", ".join("missing" if kind is None else shown(kind) for kind in kinds)
    raise InvalidError(
        f"{files} holds no RLJob or SamplerPool: kind is {named}",
        remedy="Write kind: RLJob, or name another file with -f",
    )


def create(
    cluster: Cluster,
    documents: Sequence[Document],
    *,
    namespace: str = "",
    dry_run: bool = False,
) -> Iterator[str]:
    """Create the objects; yields a line for each.

    Args:
        cluster: where to create them.
        documents: RLJobs and SamplerPools.
        namespace: that the user names; empty: the manifests', else the cluster's default one.
        dry_run: ask the API server, and create nothing.

    Raises:
        UsageError: another kind is among them, or one is of another namespace than is named.
        RequestRefusedError: the API server refuses one; those before it exist.
    """
    for document in documents:
        if not document.ours:
            raise UsageError(
                f"{document.file}: {document.name} is no RLJob or SamplerPool",
                remedy="Create other objects with `kubectl apply -f`",
            )
        if namespace:
            _require_namespace(document, namespace)
    for document in documents:
        yield _create(cluster, document, dry_run=dry_run)


def _require_namespace(document: Document, namespace: str) -> None:
    """Raise UsageError where a manifest names another namespace, as kubectl refuses it."""
    own = document.manifest["metadata"].get("namespace") or namespace
    if own != namespace:
        raise UsageError(
            f"{document.file}: {document.name} is of namespace {own}, and -n is {namespace}",
            remedy="Change metadata.namespace, or leave out -n",
        )


def _create(cluster: Cluster, document: Document, *, dry_run: bool) -> str:
    manifest = document.manifest
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    namespace = manifest["metadata"].get("namespace") or cluster.default_namespace
    query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    try:
        cluster.api.request(
            "POST",
            path(PLURALS[kind], namespace),
            doing=f"creating {kind} {namespace}/{name}",
            body=manifest,
            query=query,
        )
    except RequestRefusedError as error:
        if error.reason != ALREADY_EXISTS:
            raise
        raise RequestRefusedError(
            doing=f"creating {kind} {namespace}/{name}",
            cause="it exists already",
            remedy="Give the job another name, delete the old one, or change it with "
            "`kubectl apply -f`",
        ) from error
    done = "would be created" if dry_run else "created"
    return f"{kind.lower()}.{GROUP}/{name} {done} in namespace {namespace}"
