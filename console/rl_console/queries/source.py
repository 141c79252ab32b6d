"""Where viewers get what they show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from rl_console.errors import NotFoundError, UsageError
from rl_contracts.queries.answers import Answer, NotFound
from rl_contracts.queries.kinds import Message

A = TypeVar("A", bound=Answer)


class Source(Protocol):
    """Objects and data of runs, with the rights of one viewer. For any thread."""

    def jobs(self, namespace: str) -> Iterable[dict[str, Any]]:
        """RLJobs by name, as the API server has them; an empty namespace: of all.

        They may be read while they are looked through, so that few are held at the same time.
        """

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        """One RLJob; raises NotFoundError."""

    def pools(self, namespace: str) -> list[dict[str, Any]]:
        """SamplerPools of a namespace, as the API server has them."""

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Events about an RLJob; empty where the viewer may not list them."""

    def ask(self, namespace: str, job: str, query: Message, *, patient: bool = True) -> Answer:
        """The answer to a query; raises a ConsoleError where there is none.

        Args:
            namespace: of the job.
            job: its name.
            query: what is asked.
            patient: ask again for a while where nobody answers yet.
        """


def answer(
    source: Source,
    namespace: str,
    job: str,
    query: Message,
    kind: type[A],
    *,
    patient: bool = True,
) -> A:
    """Ask for an answer of a kind; NotFoundError where what the query names does not exist."""
    given = source.ask(namespace, job, query, patient=patient)
    if isinstance(given, NotFound):
        raise NotFoundError(doing=f"reading data of {namespace}/{job}", remedy=given.missing)
    assert isinstance(given, kind), type(given)
    return given


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Raise UsageError where a question is made with a value that it cannot have."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise UsageError(f"{place} cannot be asked for: {problem['msg']}") from error
