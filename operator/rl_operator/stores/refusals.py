"""Refusals of a job's inputs: as conditions show them, and which ones pass by themselves."""

from __future__ import annotations

import re
from dataclasses import replace

from rl_contracts.errors import Refusal
from rl_contracts.reader import RefusalText
from rl_operator.kube.redact import redacted
from rl_operator.stores.reader_pods import NOT_ANSWERING, NOT_RUNNING

REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,60}", re.ASCII)


def is_outage(reason: str) -> bool:
    """Whether a refusal passes once a store, the hub or the pod of a reader answers again."""
    return reason.endswith("Unreachable") or reason in (NOT_RUNNING, NOT_ANSWERING)


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
