"""Parses the ``--bounds`` option of the audit's command line."""

from __future__ import annotations

from pydantic import ValidationError

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.retention import Retention


def parse(given: str) -> Retention:
    """Parse bounds from JSON; raises RefusedError when they are invalid."""
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
                f"{kind} are objects in the bucket, not documents.",
                remedy="Omit it here and set it in the RLJob: the trainer deletes them.",
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
