"""Scorer ``Code``: runs the response's program against the record's tests in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rl_sampler.sandbox.client import Sandbox
from rl_sampler.sandbox.tool import last_block
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES
from rl_sampler.scorers.response import Response, ScoringError


class Case(BaseModel):
    """A program's standard input, and its expected output."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str = ""
    output: str


CASES = TypeAdapter(list[Case])


class CodeScorer:
    """Runs the response's program against the tests in the record's answer."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def __call__(self, response: Response) -> float:
        """1 where all tests pass, else 0.

        The program is the last Python block of the answer, or the whole answer without a block.
        A reference that is a JSON list holds cases: the program must print each case's output,
        except for white space at the ends of lines and of the whole. Any other reference is Python,
        which is run after the program and must run to its end.

        Raises:
            ScoringError: as ``read_cases``.
            SandboxDownError: the sandbox did not run the program.
        """
        if response.answer is None or not response.answer.strip():
            return 0.0
        program = last_block(response.answer) or response.answer
        cases = read_cases(response.reference)
        if cases is None:
            outcome = await self._sandbox.run(program, tests=response.reference)
            return float(outcome.passed)
        for case in cases:
            outcome = await self._sandbox.run(program, stdin=case.input)
            if outcome.ending != "ended" or _lines(outcome.output) != _lines(case.output):
                return 0.0
        return 1.0


def read_cases(reference: str) -> Sequence[Case] | None:
    """The cases of a reference; None where the reference is Python.

    Raises:
        ScoringError: the reference is a JSON list of something else, or is not Python; or a case
            expects more output than the sandbox keeps.
    """
    try:
        listed = isinstance(json.loads(reference), list)
    except ValueError:
        listed = False
    if listed:
        try:
            cases = CASES.validate_json(reference)
        except ValidationError as error:
            raise ScoringError(
                "the record's tests are a JSON list, but not of objects with `input` and `output`: "
                f"{error.error_count()} errors"
            ) from error
        if not cases:
            raise ScoringError("the record's list of tests is empty")
        sizes = [len("\n".join(_lines(case.output)).encode()) for case in cases]
        if max(sizes) > MAX_OUTPUT_BYTES:
            raise ScoringError(
                f"case {sizes.index(max(sizes)) + 1} of the record's tests expects {max(sizes)} "
                f"bytes of output, and the sandbox keeps {MAX_OUTPUT_BYTES}: no program can pass it"
            )
        return cases
    try:
        compile(reference, "<tests>", "exec")
    except (SyntaxError, ValueError) as error:
        raise ScoringError(f"the record's tests are not Python: {error}") from error
    return None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
