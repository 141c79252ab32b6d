"""Does the program pass the record's tests? Run in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from rl_sampler.sandbox.client import Sandbox
from rl_sampler.sandbox.programs import last_block
from rl_sampler.scorers.response import Response, ScoringError


class Case(BaseModel):
    """What a program reads, and what it then prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: str = ""
    output: str


CASES = TypeAdapter(list[Case])


class CodeScorer:
    """Runs the response's program against the record's answer, which holds its tests."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def __call__(self, response: Response) -> float:
        """1 where all tests pass, else 0.

        The program is the last Python block of the answer, or the answer where it has none. A
        reference that is a JSON list is cases: all of them run, and each must print its output,
        white space at the ends of lines and of the whole apart. Any other reference is Python that
        is run after the program, and must come to its end.

        Raises:
            ScoringError: the reference is neither.
            SandboxDownError: nothing was run.
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
    """A reference's cases; None where it is Python.

    Raises:
        ScoringError: it is a JSON list of something else, or no Python either.
    """
    try:
        listed = isinstance(json.loads(reference), list)
    except ValueError:
        listed = False
    if listed:
        try:
            cases = CASES.validate_json(reference)
        except ValidationError as error:
            raise ScoringError(f"the record's tests are no cases: {error.error_count()}") from error
        if not cases:
            raise ScoringError("the record's list of tests is empty")
        return cases
    try:
        compile(reference, "<tests>", "exec")
    except (SyntaxError, ValueError) as error:
        raise ScoringError(f"the record's tests are no Python: {error}") from error
    return None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
