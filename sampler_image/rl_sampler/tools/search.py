"""The built-in tool ``search``: documents of a collection, from a retrieval service.

The service is asked as those of Search-R1 (Jin et al., 2503.09516) and verl are: a query and the
number of documents are posted, and each query has a list of documents, the best first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rl_contracts.documents.sampler import SEARCH_SERVICE
from rl_contracts.spec.agent.search import Search
from rl_sampler.completions.errors import EndpointDownError, EndpointRefusedError
from rl_sampler.completions.posting import Posting
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult, text_tool

NAME = "search"
ARGUMENT = "query"
DESCRIPTION = "Searches a collection of documents."
MOST_CHARACTERS = 2000
"""Of a query."""
NOTHING = "No document matches."
PROBE = "what is here"
"""Asked before a group begins; whatever it finds, an answer of the right form is enough."""
PAUSES_SECONDS = (0.5, 2.0)
"""Before each further try of a query that got no answer: a query changes nothing there."""


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(_Lenient):
    """A document of the collection: ``contents``, or ``title`` and ``text``."""

    contents: str = ""
    """The title in the first line, and the text below it."""
    title: str = ""
    text: str = ""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if not self.model_fields_set & {"contents", "text"}:
            raise ValueError("has neither contents nor text")
        return self

    def shown(self, number: int) -> str:
        """The document as the policy reads it: with its place among the others, from 1."""
        title, text = self.title, self.text or self.contents
        if not self.text and not title and "\n" in self.contents:
            title, text = self.contents.split("\n", 1)
        title = title.strip().strip('"')
        heading = f"Doc {number} (Title: {title})" if title else f"Doc {number}"
        return f"{heading}\n{text.strip()}"


class _Hit(_Lenient):
    document: Document


class _Reply(_Lenient):
    result: list[list[_Hit]] = Field(min_length=1, max_length=1)


class SearchTool:
    """A source with a single tool, which asks a retrieval service."""

    def __init__(
        self, section: Search, *, session: aiohttp.ClientSession, token_file: Path
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            section: of the manifest.
            session: for requests to servers that the manifest names.
            token_file: holds the service's token, if the manifest names a Secret.
        """
        self._section = section
        self._posting = Posting(
            name=f"the search service at {section.url}",
            settings="url and token of agent.search",
            seconds=section.timeout_seconds,
            token_file=token_file if section.token_secret_ref is not None else None,
            session=session,
        )

    async def tools(self) -> list[Tool]:
        """The tool, once the service has answered a query.

        Raises:
            ToolDownError: it does not answer, or not as a retrieval service does.
        """
        try:
            await self._search(PROBE)
        except (EndpointDownError, EndpointRefusedError) as error:
            raise _down(error) from error
        text = self._section.description or DESCRIPTION
        meaning = "What to search for."
        return [text_tool(NAME, description=text, argument=ARGUMENT, meaning=meaning)]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Search; a query that the service refuses fails with the reason.

        Raises:
            ToolDownError: the service did not answer any of several tries.
        """
        query = arguments.get(ARGUMENT)
        if not isinstance(query, str) or not query.strip():
            return ToolResult(text=f"The argument `{ARGUMENT}` must be a text.", failed=True)
        if len(query) > MOST_CHARACTERS:
            message = f"The query has more than {MOST_CHARACTERS} characters."
            return ToolResult(text=message, failed=True)
        try:
            return ToolResult(text=described(await self._search_with_retries(query)))
        except EndpointRefusedError as error:
            return ToolResult(text=f"The search refused the query: {error.reason}", failed=True)
        except EndpointDownError as error:
            raise _down(error) from error

    async def close(self) -> None:
        """Do nothing: the session is the agent's."""

    async def _search_with_retries(self, query: str) -> Sequence[Document]:
        for seconds in PAUSES_SECONDS:
            try:
                return await self._search(query)
            except EndpointDownError:
                await asyncio.sleep(seconds)
        return await self._search(query)

    async def _search(self, query: str) -> Sequence[Document]:
        """The best documents for a query, at most ``topK``.

        Raises:
            EndpointDownError: no answer, or one of another form.
            EndpointRefusedError: the service refuses the query.
        """
        body = {"queries": [query], "topk": self._section.top_k, "return_scores": True}
        reply = await self._posting.post(self._section.url, body)
        try:
            (hits,) = _Reply.model_validate_json(reply).result
        except ValidationError as error:
            raise EndpointDownError(
                f"{self._posting.name} answers in another form than "
                '{"result": [[{"document": {"contents": …}, "score": …}]]}: check agent.search.url'
            ) from error
        return [hit.document for hit in hits[: self._section.top_k]]


def described(documents: Sequence[Document]) -> str:
    """Documents as the policy reads them, the best first."""
    shown = [document.shown(number) for number, document in enumerate(documents, start=1)]
    return "\n\n".join(shown) or NOTHING


def _down(error: Exception) -> ToolDownError:
    return ToolDownError(str(error), kind=SEARCH_SERVICE)
