"""Refusals that a reader has written, without what looks like a secret."""

from __future__ import annotations

import re
from dataclasses import replace

from rl_contracts.errors import Refusal
from rl_contracts.reader import RefusalText
from rl_operator.kube.redact import redacted

REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,60}", re.ASCII)


def shown(text: RefusalText) -> Refusal:
    """The refusal as a condition may show it."""
    refusal = text.refusal()
    return replace(
        refusal,
        value=redacted(refusal.value),
        reason=refusal.reason if REASON.fullmatch(refusal.reason) else "Refused",
        message=redacted(refusal.message),
        remedy=redacted(refusal.remedy),
    )
