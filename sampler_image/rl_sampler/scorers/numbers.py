r"""Numbers as language models write them: ``$1,234.50``, ``\frac{3}{4}``, ``2 1/2``, ``50\%``."""

from __future__ import annotations

import re
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
UNIT = re.compile(
    r"\s+[^\W\d_][^\d=<>^*/\\]{0,60}|[^\W\d_]{2,12}\d?|[mghskL°]|\s?°\s?[CF]?", re.DOTALL
)
"""What may follow a number that is the whole answer: `` apples``, ``km``, ``m``, ``°C``."""
BEFORE = re.compile(
    r"(?:about|approximately|around|exactly|roughly|only|just|[~≈])?\s*", re.IGNORECASE
)
OPERATORS = re.compile(r"[\\^*+=<>{}]")
TYPED = {
    r"\$": "$", r"\%": "%", r"{,}": ",", r"\,": "", r"\!": "", r"\;": " ", r"\ ": " ", "~": " ",
    r"\left": "", r"\right": "", r"^{\circ}": "°", r"^\circ": "°", "−": "-", "–": "-",
    "\u202f": " ", "\u00a0": " ", r"\approx": "=", "≈": "=",
}  # fmt: skip
NAMED = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]*)\}")
CURRENCY = re.compile(r"[$€£¥]|\\[()\[\]]|\bUSD\b")


def untyped(text: str) -> str:
    r"""A text without the marks of Markdown and LaTeX around numbers; currencies are dropped."""
    for mark, plain in TYPED.items():
        text = text.replace(mark, plain)
    text = NAMED.sub(r" \1 ", text.replace("**", "").replace("__", "").replace("`", ""))
    return CURRENCY.sub("", text).strip()


def value(text: str) -> str | None:
    """The number that a text is or contains alone, in plain form; None where it has several.

    Examples: as ``written_alone``; ``She sold 72 clips.`` → ``72``; ``2^{10}``, ``5x`` → None.
    """
    alone = written_alone(text)
    plain = untyped(text)
    numbers = list(NUMBER.finditer(plain)) if alone is None else []
    if len(numbers) != 1 or OPERATORS.search(plain.replace(numbers[0][0], "")):
        return alone
    return _plain(numbers[0]) if _apart(plain, numbers[0]) else None


def written_alone(text: str) -> str | None:
    """The number that a text is, in plain form; None where it is not one number, with a unit.

    What precedes the last ``=`` is left out. A percent sign counts as a unit: ``50%`` is 50.
    Examples: ``$1,234.00`` → ``1234``; ``x = 7`` → ``7``; ``0.50 km`` → ``0.5``; ``2^{10}`` → None.
    """
    plain = untyped(text)
    for part in (plain, plain.rpartition("=")[2]):
        part = part.strip().rstrip(".!,;:").rstrip()
        before = BEFORE.match(part)
        match = NUMBER.match(part, before.end() if before else 0)
        if match and (match.end() == len(part) or UNIT.fullmatch(part, match.end())):
            return _plain(match)
    return None


def first_number(text: str) -> str | None:
    """The first number of a text in plain form."""
    match = NUMBER.search(untyped(text))
    return _plain(match) if match else None


def last_number(text: str) -> str | None:
    """The last number of a text in plain form."""
    matches = list(NUMBER.finditer(untyped(text)))
    return _plain(matches[-1]) if matches else None


def _apart(text: str, match: re.Match[str]) -> bool:
    """Whether a number is not part of a name such as ``x2`` or ``5x``."""
    before, after = text[: match.start()][-1:], text[match.end() :][:1]
    return not before.isalnum() and not after.isalpha()


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
