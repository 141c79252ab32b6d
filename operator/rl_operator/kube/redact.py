"""Removes secrets from texts of others: logs of pods, errors of clients.

Such a text must not keep the operator busy: no pattern can match from the middle of what it has
already scanned, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_COUNT = r"s(?:per\w{1,20})?[\"']?\s{0,3}[=:]\s{0,3}[\"']?\d{1,9}\b"
"""Follows "token" where tokens are counted."""
_NAMES = (
    r"(?<![\w.-])(?=[\w.-]*(?:passw(?:or)?d|passwd|pwd|secret(?!name)|"
    rf"token(?!izer|{_COUNT})|api[_-]?key|access[_-]?key|"
    r"private[_-]?key|credential|authorization))[\w.-]++"
)
PATTERNS = (
    # scheme://user:password@host
    (re.compile(r"(://[^\s:/@]*):[^\s@/]+@"), rf"\1:{HIDDEN}@"),
    # Authorization: Bearer …
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # name=value and "name": "value"
    (
        re.compile(
            rf"({_NAMES}[\"']?\s*[=:]\s*[\"']?)(?!\[hidden\])[^\s\"',;&]{{4,}}", re.IGNORECASE
        ),
        rf"\1{HIDDEN}",
    ),
    # X-Amz-Signature and the like in signed addresses
    (re.compile(r"([?&](?:X-Amz-[\w-]+|sig|signature)=)[^\s&]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    # Tokens of a known form: AWS, Hugging Face, GitHub, OpenAI, JSON web tokens.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|sk-|xox[abp]-)[A-Za-z0-9_-]{16,}"), HIDDEN),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), HIDDEN),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.S
        ),
        HIDDEN,
    ),
)


def redacted(text: str) -> str:
    """The text without anything that looks like a secret. Idempotent."""
    if not text:
        return text  # most pods have no message
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text
