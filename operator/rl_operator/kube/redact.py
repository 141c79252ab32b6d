"""Removes secrets from texts of others: logs of pods, errors of clients.

A name such as ``password`` hides its whole value, in the notations of shells, URIs, JSON, YAML, XML
and Kubernetes; tokens of a known form are hidden wherever they stand. Scanners such as
detect-secrets report lines of files and replace nothing, and those that judge by entropy report
digests and UIDs too.

Such a text must not keep the operator busy: no pattern can match from the middle of what it has
already scanned, or what it scans is bounded, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_COUNT = r"s(?:per\w{1,20})?\\{0,3}[\"']?\s{0,3}[=:]\s{0,3}[\"']?\d{1,9}\b"
"""Follows "token" where tokens are counted; those of a model are no secrets either."""
_KEYS = "api|access|private|account|signing|encryption|master|storage|shared|ssh|service|client"
_SECRET = (
    r"passw(?:or)?d|passwd|passphrase|pwd|secret(?!name)|"
    rf"(?<!eos_)(?<!bos_)(?<!pad_)(?<!unk_)(?<!stop_)token(?!iz|[_-]?ids?\b|{_COUNT})|(?:{_KEYS})[_-]?key|credential"
)
_BARE_NAME = rf"(?=[\w.-]*(?:{_SECRET}))[\w.-]++"
_NAME = rf"(?<![\w.-]){_BARE_NAME}"
_QUOTE = r"\\{0,3}[\"']"
_KEPT = re.escape(HIDDEN)
_QUOTED = rf"(?P<quote>{_QUOTE})(?!{_KEPT})(?:(?!(?P=quote))[^\r\n]){{1,4096}}+"
_LIST = r"[\[{(](?!hidden\])[^\])}]{1,4096}+"
_BARE = rf"(?!{_KEPT})(?:[^\s\"',;&<]|[,;&](?!\s|[\w.-]+[=:])|(?<=\w)[\"'](?=\w)){{4,}}+"
_BLOCK = r"(?:[|>][+-]?\s*\n\s*)?"
"""YAML's mark of a value that follows on the next lines."""
_VALUE = rf"(?:{_QUOTED}|{_LIST}|{_BARE})"
_I = re.IGNORECASE


def _after(before: str, flags: int = _I) -> tuple[re.Pattern[str], str]:
    """The pattern of what precedes a value, and the value's replacement."""
    return re.compile(rf"(?P<before>{before}){_VALUE}", flags), rf"\g<before>{HIDDEN}"


PATTERNS = (
    # Private keys, also where a name precedes them and where line ends are escaped.
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|$)",
            re.S,
        ),
        HIDDEN,
    ),
    # scheme://user:password@host, and scheme://token@host; a port is no password
    (
        re.compile(
            rf"(://[^\s:/@\"']{{0,256}}+):(?!\d{{1,5}}(?:[/?#\s]|$))(?!{_KEPT})"
            r"(?:[^\s@\"'<>]{0,256}+@){1,4}+"
        ),
        rf"\1:{HIDDEN}@",
    ),
    (re.compile(rf"(://)(?!{_KEPT})[^\s:/@\"'?#]{{16,256}}+@"), rf"\1{HIDDEN}@"),
    # Headers: the scheme's name may precede the value
    (
        re.compile(
            rf"\b((?:proxy-)?authorization|(?:set-)?cookie)(\\{{0,3}}[\"']?\s*[:=,]\s*+{_QUOTE}?)"
            rf"(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?(?!{_KEPT})[^\r\n\"'\\]{{4,}}",
            _I,
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", _I), rf"\1 {HIDDEN}"),
    # "name": "DB_PASSWORD", "value": "…": an environment variable of Kubernetes
    _after(
        rf"\bname{_QUOTE}?\s*[:=]\s*(?:{_QUOTE})?{_NAME}(?:{_QUOTE})?,?\s{{0,80}}"
        rf"(?:{_QUOTE})?value(?:{_QUOTE})?\s*[:=]\s*"
    ),
    # name=value, name: value, "name": "value", with escaped quotes too; the value of YAML on the
    # next line. The kubelet's words volume "token" : secret "hub" not found name no value.
    _after(rf"{_NAME}(?:{_QUOTE})?[ \t]*(?:=>|:=|[=:])\s*+{_BLOCK}(?!(?:secret|configmap) \")"),
    # <name>value</name>
    (
        re.compile(rf"(<{_BARE_NAME}>)(?!{_KEPT})[^<]{{1,4096}}+", _I),
        rf"\1{HIDDEN}",
    ),
    # --name value; -u user:password
    _after(rf"(?<!\S)--?{_BARE_NAME}\s+(?!-)(?!\d+(?:\s|$))"),
    (
        re.compile(rf"((?<!\S)(?:-u|--user)[\s=]++[^\s:=]{{1,128}}+):(?!{_KEPT})\S+"),
        rf"\1:{HIDDEN}",
    ),
    # password 'value', password is value
    _after(r"\b(?:passw(?:or)?d|passphrase)(?:\s+is)?\s+(?=[\"'])"),
    _after(
        r"\b(?:passw(?:or)?d|passphrase)\s+is\s+(?!(?:not|too|in|a|the|an|wrong|required)(?:\s|$))"
    ),
    # X-Amz-Signature and the like in signed addresses
    (
        re.compile(r"([?&](?:X-(?:Amz|Goog)-[\w-]+|sig|signature)=)[^\s&\"']+", _I),
        rf"\1{HIDDEN}",
    ),
    # Tokens of a known form: AWS, Google, chat hooks, and prefixes that other services give theirs
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\bAIza[\w-]{30,}"), HIDDEN),
    (re.compile(r"\bya29\.[\w-]{16,}"), HIDDEN),
    (re.compile(r"(hooks\.slack\.com/services/)(?!\[hidden\])[\w/-]{16,}"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"\b(?:hf_|gh[pousr]_|github_pat_|sk-|[rs]k_live_|xox[abeprs]-|gl[a-z]{2,6}-|npm_|pypi-|"
            r"dckr_pat_|nvapi-|gsk_|r8_|shpat_|dop_v1_|hvs\.|SG\.|ATATT|AGE-SECRET-KEY-)"
            r"[\w.=-]{16,}"
        ),
        HIDDEN,
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), HIDDEN),
)


def redacted(text: str) -> str:
    """The text without anything that looks like a secret. Idempotent."""
    if not text:
        return text  # most pods have no message
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text
