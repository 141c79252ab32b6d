r"""Numbers as language models write them: ``$1,234.50``, ``\frac{3}{4}``, ``2 1/2``, ``50\%``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

MAX_CHARACTERS = 60
DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
FRACTION = r"\\[dt]?frac\s*\{\s*-?\d+\s*\}\s*\{\s*\d+\s*\}"
SIGN = r"(?<![\w.)}])[-+]|"
NUMBER = re.compile(
    rf"(?P<sign>{SIGN})(?:(?P<whole>\d+)\s+(?P<part>\d+/\d+)(?!/)|(?P<latex>{FRACTION})"
    rf"|(?P<top>{DECIMAL})\s?/\s?(?P<bottom>\d+)(?![\d/])"
    rf"|(?P<decimal>{DECIMAL})(?P<exponent>[eE][-+]?\d{{1,2}}(?!\w))?)(?P<percent>\s?%|\s?percent\b)?"
)
LETTER = r"[^\W\d_]"
UNIT = (
    r"(?:[munckMdh]?[mgslLWVAJN]|[kMGT]?(?:Hz|B|Pa|eV)|[kMG]?Wh|k?cal|[ckm]?m[23]|ft2?|in|yd|mi|lbs?"
    r"|oz|hr?s?|mins?|secs?|yrs?|[ap]m|[AP]M|st|nd|rd|th|mph|k[mp]h|rad|deg|mol|p[tx]s?|°[CF]?"
    rf"|{LETTER}{{4,12}})(?:/{LETTER}+)?|-{LETTER}{{3,}}|/(?!pi\b){LETTER}{{2,}}|['’]s"
)
"""What may follow a number without a space. Hazard: ``6xy`` is a product, so units are listed."""
AROUND = r"[.,;:!?\"'’()\[\]…]*"
COUNTED = re.compile(rf"[\"'(\[]*(?:about|[~≈])?\0(?:{UNIT})?{AROUND}")
"""A number as it stands between the words of a text."""
WORD = re.compile(
    rf"{AROUND}(?:{LETTER}-)?{LETTER}{{2,}}(?:['’./-]{LETTER}+)*{AROUND}|{AROUND}m/s{AROUND}"
)
FUNCTION = re.compile(rf"{AROUND}(?:log|ln|sin|cos|tan|cot|sec|csc|exp|sqrt|max|min|mod){AROUND}")
UNITS = re.compile(rf"(?:[mghsLCF]|°\s?[CF]?){AROUND}")
"""Of one letter, right behind a number and a space."""
BESIDE_WORDS = re.compile(rf"{AROUND}{LETTER}?{AROUND}|[-–—]|&")
"""What stands for itself in a text that has words: ``x is 3`` is a text, and ``3 - x`` is none."""
OR = re.compile(r"\s*,?\s*or\s*", re.IGNORECASE)
SPLIT_SIGN = re.compile(r"^([-+])\s+(?=[\d.\\])")
EQUALS = re.compile(r"(?<![<>!])=")
JOINED = re.compile(r"\b(?:or|and)\b|[,;](?!\d)")
BEFORE = re.compile(
    r"(?:about|approximately|around|exactly|roughly|only|just|[~≈])?\s*", re.IGNORECASE
)
TYPED = {
    r"\$": "$", r"\%": "%", r"{,}": ",", r"\,": "", r"\!": "", r"\;": " ", r"\ ": " ", "~": " ",
    r"\left": "", r"\right": "", r"^{\circ}": "°", r"^\circ": "°", "−": "-", "–": "-",
    "\u202f": " ", "\u00a0": " ", r"\approx": "=", "≈": "=", "→": "=", "✓": "", "✔": "", "✅": "",
}  # fmt: skip
NAMED = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]*)\}")
CURRENCY = re.compile(r"[$€£¥₹₩₽]|\\[()\[\]]|\bUSD\b")


def untyped(text: str) -> str:
    r"""A text without the marks of Markdown and LaTeX around numbers; currencies are dropped."""
    for mark, plain in TYPED.items():
        text = text.replace(mark, plain)
    text = NAMED.sub(r" \1 ", text.replace("**", "").replace("__", "").replace("`", ""))
    return CURRENCY.sub("", text).strip()


def value(text: str) -> str | None:
    """The number that a text is or contains alone, in plain form; None where it has several.

    Beside the number there are words alone: what is a part of a formula is no number.
    Examples: as ``written_alone``; ``She sold 72 clips.`` → ``72``; ``2^{10}``, ``5x``, ``x/2``,
    ``n - 1``, ``(x, 3)`` → None.
    """
    alone = written_alone(text)
    if alone is not None:
        return alone
    plain = untyped(text)
    numbers = list(NUMBER.finditer(plain))
    return _plain(numbers[0]) if len(numbers) == 1 and _in_words(plain) else None


def written_alone(text: str) -> str | None:
    """The number that a text is, in plain form; None where it is not one number, with a unit.

    What precedes the last ``=`` is left out. A percent sign counts as a unit: ``50%`` is 50.
    Examples: ``$1,234.00`` → ``1234``; ``x = 7`` → ``7``; ``0.50 km`` → ``0.5``; ``- 3`` → ``-3``;
    ``2^{10}``, ``x >= 3``, ``x = 3 or x = 4`` → None.
    """
    plain = untyped(text)
    for part in (plain, _behind_equals(plain)):
        part = SPLIT_SIGN.sub(r"\1", part.strip().rstrip(".!,;:").rstrip())
        before = BEFORE.match(part)
        match = NUMBER.match(part, before.end() if before else 0)
        if match and NUMBER.search(part, match.end()) is None and _in_words(part[match.start() :]):
            return _plain(match)
    return None


def first_number(text: str) -> str | None:
    """The first number of a text of words and numbers in plain form.

    None in a formula, and where ``or`` offers another.
    """
    plain = untyped(text)
    matches = list(NUMBER.finditer(plain))
    if not matches or _alternatives(plain, matches[:2]) or not _in_words(plain):
        return None
    return _plain(matches[0])


def last_number(text: str) -> str | None:
    """The last number of a text in plain form; None where ``or`` offers another before it."""
    plain = untyped(text)
    matches = list(NUMBER.finditer(plain))
    return _plain(matches[-1]) if matches and not _alternatives(plain, matches[-2:]) else None


def _alternatives(text: str, pair: Sequence[re.Match[str]]) -> bool:
    """Whether nothing but ``or`` stands between two numbers."""
    if len(pair) < 2:
        return False
    first, second = pair
    return OR.fullmatch(text, first.end(), second.start()) is not None


def _behind_equals(text: str) -> str:
    """What follows the last ``=``; empty where an earlier equation says something else."""
    *earlier, last = EQUALS.split(text)
    return "" if any(map(JOINED.search, earlier[1:])) else last


def _in_words(text: str) -> bool:
    """Whether all that a text has beside its numbers are words, and units."""
    marked = NUMBER.sub("\0", text)
    worded, behind_number = False, False
    apart = []
    for token in marked.split():
        unit = behind_number and UNITS.fullmatch(token)
        behind_number = token.endswith("\0")
        if unit or COUNTED.fullmatch(token):
            continue
        if WORD.fullmatch(token) and not FUNCTION.fullmatch(token):
            worded = True
        elif BESIDE_WORDS.fullmatch(token):
            apart.append(token)
        else:
            return False
    return worded or not apart


def _plain(match: re.Match[str]) -> str | None:
    if len(match[0]) > MAX_CHARACTERS:
        return None
    parts = match.groupdict()
    try:
        if parts["whole"]:
            number = Fraction(parts["whole"]) + Fraction(parts["part"])
        elif parts["latex"]:
            top, bottom = re.findall(r"-?\d+", parts["latex"])
            number = Fraction(int(top), int(bottom))
        elif parts["top"]:
            number = Fraction(parts["top"].replace(",", "")) / int(parts["bottom"])
        else:
            number = Fraction(parts["decimal"].replace(",", "") + (parts["exponent"] or ""))
    except ZeroDivisionError:
        return None
    return _written(-number if parts["sign"].startswith("-") else number)


def _written(number: Fraction) -> str:
    """``3``, ``0.75``, or ``1/3`` where no decimal is exact."""
    bottom, places = number.denominator, 0
    for prime in (2, 5):
        times = 0
        while bottom % prime == 0:
            bottom, times = bottom // prime, times + 1
        places = max(places, times)
    if bottom > 1:
        return f"{number.numerator}/{number.denominator}"
    digits = f"{abs(number.numerator) * 10**places // number.denominator:0{places + 1}d}"
    sign = "-" if number < 0 else ""
    point = len(digits) - places
    return f"{sign}{digits[:point]}{'.' if places else ''}{digits[point:]}"
