"""``python -m rl_sampler.code.math_worker``: compares mathematical answers, line by line.

It reads lines ``{"reference": …, "answer": …, "seconds": …}`` and writes ``true`` or ``false`` for
each. Hazard: the policy writes the answers, and no computer may be able to evaluate them. So the
kernel ends the process when a comparison exceeds its seconds of processor time, and its memory is
limited.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

MEMORY_BYTES = 2 << 30
FORMS = (LatexExtractionConfig(), ExprExtractionConfig())


def same(reference: str, answer: str) -> bool:
    """Whether two mathematical expressions, LaTeX or plain, have the same value."""
    gold, target = (
        parse(_marked(text), extraction_config=FORMS, parsing_timeout=None)
        for text in (reference, answer)
    )
    return bool(verify(gold, target, timeout_seconds=None))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _marked(text: str) -> str:
    """The text between dollar signs, so that it is parsed as a single expression."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


def main() -> None:
    """Answer until the input ends."""
    logging.disable()  # math-verify logs each expression that it cannot parse
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # The default action, not a handler: one would not run inside of a long multiplication.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        try:
            equal = same(asked["reference"], asked["answer"])
        except (MemoryError, RecursionError):
            equal = False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        _say(json.dumps(equal))


if __name__ == "__main__":
    main()
