"""Bounds of a run's documents, as the command line of the audit gives them."""

from __future__ import annotations

from pydantic import ValidationError

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.retention import Retention


def parse(given: str) -> Retention:
    """The bounds that ``--bounds`` gives; raises RefusedError for what they cannot be."""
    try:
        bounds = Retention.model_validate_json(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}."
        raise _malformed(
            given, message, remedy="Write it as spec.lifecycle.retention of an RLJob, in JSON."
        ) from error
    for kind in ("policies", "checkpoints"):
        if kind in bounds.model_fields_set:
            raise _malformed(
                given,
                f"{kind}: they are no documents.",
                remedy="Leave it out here and set it in the RLJob: its trainer deletes them.",
            )
    return bounds


def _malformed(given: str, message: str, *, remedy: str) -> RefusedError:
    return RefusedError(
        Refusal(
            field="--bounds",
            value=given[:200],
            reason="BoundsMalformed",
            message=message,
            remedy=remedy,
        )
    )
