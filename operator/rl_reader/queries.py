"""Viewers' questions about runs, each answered within a deadline and a size."""

from __future__ import annotations

import time

from pydantic import ValidationError

from rl_contracts.errors import RLError
from rl_contracts.queries.answering import Answering
from rl_contracts.queries.answers import Answer
from rl_contracts.queries.kinds import QUERY, Query
from rl_contracts.reader import ANSWER_BYTES, QueryAnswer, QueryRequest
from rl_contracts.stores.clients.unexpected import unexpected_answers
from rl_contracts.stores.connect import Stores
from rl_reader.mounted import Folder
from rl_reader.reach import Asked, shown

CONTENT_BYTES = ANSWER_BYTES - (1 << 20)
"""Of an answer's JSON, with the backslashes that it gets because it travels inside of JSON."""
TOO_LARGE = f"The answer is larger than {CONTENT_BYTES >> 20} MiB. Ask for less at a time."


class Queries:
    """Answers questions about the runs of one namespace. For any thread."""

    def __init__(self, folder: Folder, *, store_seconds: float) -> None:
        """Answer from the stores that ``folder`` names."""
        self._folder, self._seconds = folder, store_seconds
        self._answering = Answering()

    def answer(self, request: QueryRequest) -> QueryAnswer:
        """Answer a question; never raises for a store that is down."""
        try:
            query = QUERY.validate_python(request.query)
        except ValidationError as error:
            return QueryAnswer(problem=_first_problem(error), valid=False)
        mounted = self._folder.current()
        if mounted.stores is None:
            return QueryAnswer(problem=str(mounted.refusal))
        try:
            answer = self._read(mounted.stores, query, request)
        except (RLError, ValueError) as error:
            return QueryAnswer(problem=shown(str(error), mounted.without_secrets))
        content = answer.model_dump_json()
        escaped = len(content.encode()) + content.count('"') + content.count("\\")
        if escaped > CONTENT_BYTES:
            return QueryAnswer(problem=TOO_LARGE)
        return QueryAnswer(content=content)

    def _read(self, stores: Stores, query: Query, request: QueryRequest) -> Answer:
        answers: list[Answer] = []

        def ask() -> None:
            with unexpected_answers():
                answers.append(
                    self._answering.answer(
                        stores,
                        query,
                        run=request.run,
                        namespace=self._folder.namespace,
                        tokenizer=request.tokenizer,
                    )
                )

        asked = Asked(ask, name="query")
        ends = time.monotonic() + self._seconds
        if not asked.wait(ends - time.monotonic()):
            asked.abandon()
            self._folder.reconnect()
            raise _LateError(self._seconds)
        return answers[0]


class _LateError(RLError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The stores did not answer within {seconds:.0f} s. Try again, or ask for less."
        )


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"The query cannot be answered: {place}: {first['msg']}"[:500]
