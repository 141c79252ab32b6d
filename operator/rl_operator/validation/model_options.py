"""What of a model's address cannot be honoured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.data import FILE_SCHEME, HUB_SCHEME, ModelSource

COMMIT = re.compile(r"[0-9a-f]{40}")


def of_model(model: ModelSource, *, moves: bool = True) -> Iterator[Refusal]:
    """Of a job's model, or a pool's.

    Args:
        model: as it is written.
        moves: whether a branch or a tag will do: each run takes what it names when it begins.
    """
    named = {"spec.model.uri": model.uri, "spec.model.tokenizerUri": model.tokenizer_uri or ""}
    yield from (_mounted(at, uri) for at, uri in named.items() if uri.startswith(FILE_SCHEME))
    revision = model.revision
    if revision is not None and not model.uri.startswith(HUB_SCHEME):
        yield Refusal(
            field="spec.model.revision",
            value=revision,
            reason="RevisionUnsupported",
            message="A folder of a bucket has no revisions.",
            remedy="Upload that revision to a folder of its own, name it in uri, and remove this.",
        )
    elif revision is not None and "@" in model.uri:
        yield Refusal(
            field="spec.model.revision",
            value=revision,
            reason="RevisionTwice",
            message=f"spec.model.uri = {model.uri[:200]!r} names a revision, too.",
            remedy="Remove one of them.",
        )
    elif not moves:
        yield from _of_several(model)


def _of_several(model: ModelSource) -> Iterator[Refusal]:
    """Runs that begin at different times would take different commits, and share one folder."""
    wanted = {
        "spec.model.uri": (model.uri, model.revision),
        "spec.model.tokenizerUri": (model.tokenizer_uri or "", None),
    }
    for at, (uri, beside) in wanted.items():
        revision = beside or uri.partition("@")[2]
        if uri.startswith(HUB_SCHEME) and not COMMIT.fullmatch(revision):
            yield Refusal(
                field=at,
                value=uri[:200],
                reason="RevisionMoves",
                message="Runs that share an engine must have the same model, and "
                f"{revision or 'main'} may name another commit by the time that the next begins.",
                remedy=f"Name the commit, {uri.partition('@')[0][:200]}@<40 hexadecimal digits>, "
                "in the pool and in its jobs.",
            )


def _mounted(at: str, uri: str) -> Refusal:
    return Refusal(
        field=at,
        value=uri[:200],
        reason="FileModelUnsupported",
        message="Trainer and samplers would each read a volume of their own, and nothing could "
        "tell that these hold the same model.",
        remedy="Copy the folder into the bucket and name it as s3://…, or name the model on the "
        "hub as hf://org/name.",
    )
