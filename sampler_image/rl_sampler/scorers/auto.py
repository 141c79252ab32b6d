r"""``reward.answerSchema: Auto``: reads the answer out of a reply, whatever form it has.

The forms in their order; the first that the reply has is read, and of several the last:

1. ``<answer>…</answer>``
2. ``\boxed{…}`` or ``\fbox{…}``
3. ``#### …`` on the last line, or before a number alone
4. ``The answer is …``, ``Final answer: …``, a heading ``Answer`` before the line that it heads
5. the last number where the reference is a number; else the whole reply

A reply that was cut off is read in the closed forms 1 and 2 alone: any other could lack its end.
"""

from __future__ import annotations

import re

from rl_sampler.scorers import numbers
from rl_sampler.scorers.answers import boxed_answer, tagged_answer

HASHES = re.compile(r"^[ \t]*####[ \t]*(\S[^\n]*)$", re.MULTILINE)
STATEMENT = re.compile(
    r"\b(?:answer|correct (?:option|choice))(?:[ \t]+(?:to|for)\b[^\n.:=]{1,80}?)?[ \t]*"
    r"(?:\bis\b[ \t]*:?|\bwould be\b|\bshould be\b|:|=)",
    re.IGNORECASE,
)
HEADING = re.compile(
    r"^[ \t]*(?:#+[ \t]*)?(?:final[ \t]+|the[ \t]+)?answer[ \t]*(?::[ \t]*)?$", re.I | re.M
)
SENTENCE = re.compile(r"[.!?](?=\s|$)")
CHOICE = re.compile(r"\(?([A-J])\)?")
CHOSEN = re.compile(r"(?:option\s+)?\(?([A-J])(?:\)|\.|:|$)", re.IGNORECASE)
WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")


def reference_answer(reference: str) -> str:
    r"""The answer in a reference that holds a whole solution.

    What follows the last ``####`` (GSM8K's ``answer``), or the last ``\boxed{…}`` (MATH's
    ``solution``), or else the whole reference. A number is written plainly.
    """
    marked = HASHES.findall(reference)
    if marked:
        return numbers.value(marked[-1]) or marked[-1].strip()
    boxed = boxed_answer(reference)
    if boxed:
        return numbers.written_alone(boxed) or boxed.strip()
    return numbers.value(reference) or reference.strip()


def auto_answer(reply: str, *, reference: str, cut_off: bool) -> str | None:
    """The answer of a reply, in the form of the reference; None where there is none.

    Args:
        reply: without its thinking.
        reference: from ``reference_answer``.
        cut_off: the reply reached its token limit.
    """
    numeric = numbers.value(reference) == reference
    answer = _closed(reply)
    if answer is None and not cut_off:
        answer = _after_hashes(reply)
    if answer is not None:
        return _like_number(answer, reference) if numeric else _like_text(answer, reference)
    if cut_off or not reply.strip():
        return None
    stated = _stated(reply)
    if not numeric:
        return _like_text(reply if stated is None else stated, reference)
    if stated is None:
        return numbers.last_number(reply)
    answer = _like_number(stated, reference)
    return answer if numbers.value(answer) else numbers.first_number(stated) or answer


def marked_answer(reply: str, *, cut_off: bool) -> str | None:
    """The answer that a reply marks as such, as it is written; None where it marks none."""
    answer = _closed(reply)
    if answer is not None or cut_off:
        return answer
    answer = _after_hashes(reply)
    return _stated(reply) if answer is None else answer


def _closed(reply: str) -> str | None:
    tagged = tagged_answer(reply)
    return boxed_answer(reply) if tagged is None else tagged


def _after_hashes(reply: str) -> str | None:
    """Hazard: ``#### Step 2`` is a heading of Markdown, so only some of these lines count."""
    for match in reversed(list(HASHES.finditer(reply))):
        last = not reply[match.end() :].strip()
        if (last and not STATEMENT.search(match[1])) or numbers.written_alone(match[1]) is not None:
            return match[1].strip("# \t")
    return None


def _stated(reply: str) -> str | None:
    plain = reply.replace("**", "").replace("__", "")
    ends = [match.end() for form in (STATEMENT, HEADING) for match in form.finditer(plain)]
    if not ends:
        return None
    rest = plain[max(ends) :].strip()
    line = rest.partition("\n")[0].strip()
    if line in ("$$", r"\[", "```"):
        line = rest.split("\n")[1:2][0].strip() if "\n" in rest else ""
    end = SENTENCE.search(line)
    return (line[: end.start()] if end else line).strip() or None


def _like_number(written: str, reference: str) -> str:
    answer = numbers.value(written)
    if answer is not None and "%" in written and numbers.value(f"{answer}/100") == reference:
        return reference
    return written.strip() if answer is None else answer


def _like_text(written: str, reference: str) -> str:
    text = written.replace("**", "").strip()
    wrapped = WRAPPED.fullmatch(text.strip("$ "))
    text = wrapped[1].strip() if wrapped else text
    if CHOICE.fullmatch(reference):
        chosen = CHOSEN.match(text)
        return _cased(chosen[1].upper(), reference) if chosen else text
    return text.rstrip(".").strip() if "\n" not in text else text


def _cased(letter: str, reference: str) -> str:
    return reference.replace(CHOICE.fullmatch(reference)[1], letter)  # type: ignore[index]
