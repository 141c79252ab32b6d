"""What to write where a text does not match the pattern of its field: few people read patterns."""

from __future__ import annotations

import re

from rl_contracts.spec.base import FOLDER, PERCENT, QUANTITY, RUN_ID
from rl_contracts.spec.data import HUB_SCHEME, REPOSITORY

A_URL = "write http://host/path or https://host/path"
NO_TOKEN = "a user or a token belongs in a Secret"
A_VARIABLE = "write letters, digits and '_', not beginning with a digit"
AN_OBJECT = "write lower-case letters, digits, '-' and '.', as in the name of an object"
A_RUN = "write the status.runId of a job"
A_BUCKET = (
    "A bucket's name has 3 to 63 lower-case letters, digits, '-' and '.', and begins and ends with "
    "a letter or digit"
)
BUCKET = FOLDER.partition("/.+")[0]
HINTS = {
    rf"^({FOLDER}|{REPOSITORY})$": "write hf://org/name or s3://bucket/folder",
    r"^((s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]|file://)/([^?#]+\.(jsonl?|parquet)|[^?#]+/)"
    r"|hf://(datasets/)?\w[\w.-]*/[\w.-]+(@[\w.-]+)?(/[^?#@]+)?)$": (
        "write s3://bucket/file.jsonl (or .json, .parquet), hf://org/name, or "
        "file:///path/file.jsonl; CSV is not read"
    ),
    rf"^{FOLDER}$": "write s3://bucket/folder",
    QUANTITY: "write a number or e.g. 500m, 16G or 16Gi, not 16GB",
    PERCENT: "write a number of pods or a share, e.g. 25%",
    "^[0-9]{1,8}$|^Auto$": "write a number or Auto",
    r"^[a-z]([-a-z0-9]*[a-z0-9])?$": (
        "write lower-case letters, digits and '-', beginning with a letter and not ending with '-'"
    ),
    r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": AN_OBJECT,
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$": AN_OBJECT,
    rf"^({RUN_ID})?$": A_RUN,
    rf"^{RUN_ID}$": A_RUN,
    r"^[-._a-zA-Z0-9]+$": "write a key of the Secret: letters, digits, '-', '_' and '.'",
    r"^[A-Za-z_][A-Za-z0-9_]*$": A_VARIABLE,
    r"^[A-Za-z_][A-Za-z0-9_]{0,63}$": f"{A_VARIABLE}, at most 64",
    r"^[A-Za-z][A-Za-z0-9]*$": "write letters and digits, beginning with a letter, e.g. Math",
    r"^\w+$": "write letters, digits and '_', e.g. train",
    r"^\w{1,64}$": "write letters, digits and '_', at most 64",
    r"^[\w-]+$": "write letters, digits, '_' and '-'",
    r"^[\w.]+:\w+$": "write module:attribute, e.g. my_scorers.length:Score",
    r"^\S+$": "write it without blanks, e.g. registry.example.com/name:tag",
    r"^https?://[^\s@]+$": f"{A_URL}; {NO_TOKEN}",
    r"^https?://[^\s@?#]+$": f"{A_URL}, without '?' or '#'; {NO_TOKEN}",
    r"^https?://[^/?#@\s]+(/[^?#\s]*)?$": f"{A_URL}, without '?' or '#'",
    r"^(datasets/)?[A-Za-z0-9][\w.-]*(/[\w.-]+)?$": "write an account (org) or org/name of the hub",
    r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$": "write org/name, without hf://",
}
"""By pattern of the CRDs."""


def fits(pattern: str, value: str) -> bool:
    """Whether a text matches a pattern of a CRD."""
    # In Go `$` is the end of the text alone, in Python also before a final newline.
    return bool(re.search(re.sub(r"(?<!\\)\$", r"\\Z", pattern), value))


def hint(pattern: str, value: str) -> str:
    """What to write in place of a text that does not match; the pattern if there is no hint."""
    advice = HINTS.get(pattern, f"write what matches {pattern}")
    if HUB_SCHEME in pattern and fits(pattern, f"{HUB_SCHEME}{value}"):
        return f"{advice}. If it is on the hub, write {HUB_SCHEME}{value}"
    if BUCKET in pattern and re.match("s3://[^/]", value) and not re.match(f"{BUCKET}(/|$)", value):
        return f"{advice}. {A_BUCKET}"
    return advice
