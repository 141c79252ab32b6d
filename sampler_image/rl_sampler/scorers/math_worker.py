"""``python -m rl_sampler.scorers.math_worker``: compares mathematical answers, line by line.

A line in is ``{"reference": …, "answer": …, "seconds": …}``, a line out ``true`` or ``false``. An
answer is written by the policy, and may ask for more than any computer can work out: the kernel
ends the process when a comparison has used its seconds of processor time, or its memory.
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
    wanted, said = (
        parse(_marked(text), extraction_config=FORMS, parsing_timeout=None)
        for text in (reference, answer)
    )
    return bool(verify(wanted, said, timeout_seconds=None))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _marked(text: str) -> str:
    """Between dollar signs, so that all of it is taken as one expression."""
    return text if "$" in text or "\\boxed" in text else f"${text}$"


def main() -> None:
    """Answer until the input ends."""
    logging.disable()  # math-verify tells of each expression that it cannot read
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # The default action, not a handler: one would not run inside of a long multiplication.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _say("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        try:
            found = same(asked["reference"], asked["answer"])
        except (MemoryError, RecursionError):
            found = False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        _say(json.dumps(found))


if __name__ == "__main__":
    main()
