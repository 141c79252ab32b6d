"""Removes secrets from texts of others: logs of pods, errors of clients.

A name such as ``password`` hides its whole value, in the notations of shells, URIs, JSON, YAML, XML
and Kubernetes; tokens of a known form are hidden wherever they stand. Scanners such as
detect-secrets report lines of files and replace nothing, and those that judge by entropy report
digests and UIDs too.

Not recognized, because what is no secret is written the same way far more often: ``key: value``
(objects of a bucket, fields of a record), the option ``-pVALUE`` (ports, plugins), and a value that
follows "password" or "token" in a sentence of another form than those below.

Such a text must not keep the operator busy: no pattern can match from the middle of what it has
already scanned, or what it scans is bounded, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_NUMBER = r"(?>[+-]?\d{1,9}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)"
_COUNT = (
    r"(?:s(?:per\w{1,20})?|s?[_-][\w.-]{1,40})\\{0,3}[\"']?\s{0,3}[=:]\s{0,3}[\"']?"
    rf"(?:{_NUMBER}|true|false)(?![\w+~$!=-]|[./][\w./]{{0,64}}[a-z_])"
)
"""Follows "token" where tokens are counted or measured, and in switches such as token_level=True;
tokens of a model are no secrets either."""
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
_SIGN = r"(?:=>|:=|[=:]|%3[AD]|\\{1,3}u003[ad])"
_BLOCK = r"(?:[|>][+-]?\s*\n\s*)?"
"""YAML's mark of a value that follows on the next lines."""
_VALUE = rf"(?:{_QUOTED}|{_LIST}|{_BARE})"
_WORD = r"[^\s\"',;&<]"
_LONG = rf"(?:{_QUOTE})?(?!{_KEPT})(?:(?=[^\s\d\"',;&<]{{0,64}}\d){_WORD}{{8,}}+|{_WORD}{{16,}}+)"
"""A value in a sentence: longer than words are, or with a digit."""
_I = re.IGNORECASE


def _after(before: str, value: str = _VALUE) -> tuple[re.Pattern[str], str]:
    """The pattern of what precedes a value, and the value's replacement."""
    return re.compile(rf"(?P<before>{before}){value}", _I), rf"\g<before>{HIDDEN}"


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
    # Headers: a scheme with quoted parameters, such as Digest, is hidden up to the line's end
    _after(
        rf"\bauthorization\\{{0,3}}[\"']?\s*[:=,]\s*+(?:{_QUOTE})?",
        r"[a-z][\w-]{0,32}[ \t]{1,3}[\w-]{1,64}[ \t]?=[ \t]?\\{0,3}\"[^\r\n]*+",
    ),
    # The scheme's name may precede the value
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
    _after(rf"{_NAME}(?:{_QUOTE})?[ \t]*{_SIGN}\s*+{_BLOCK}(?!(?:secret|configmap) \")"),
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
    # A column after a tab; a line of netrc
    _after(r"(?<![\w.-])(?=[\w.-]*(?:passw(?:or)?d|passphrase))[\w.-]++\t\s*+"),
    _after(
        r"\b(?:machine\s{1,9}\S{1,128}|default)\s{1,9}login\s{1,9}\S{1,128}\s{1,9}"
        r"(?:account\s{1,9}\S{1,128}\s{1,9})?password\s{1,9}"
    ),
    # API key: value, Incorrect API key provided: value; using token value; wandb login value
    _after(
        r"\b(?:api|access|private|secret|signing|encryption) (?:access )?keys?"
        rf"(?: (?:provided|used|given|is|was))?(?:{_QUOTE})?[ \t]*{_SIGN}\s*+"
    ),
    _after(
        r"\b(?:using|with) (?:the |your )?(?:api |access |auth |bearer )?"
        r"(?:token|password|(?:api|access)[ _-]key)[ \t]{1,3}",
        _LONG,
    ),
    _after(r"\bwandb login[ \t]{1,3}(?:--[\w=:/.-]{1,128}[ \t]{1,3}){0,4}", _LONG),
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
