"""What the policy is shown of a retrieval service's replies, and when the service is down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.sampler import SEARCH_SERVICE
from rl_contracts.spec.agent.search import Search
from rl_sampler.completions import posting
from rl_sampler.completions.guard import open_outside
from rl_sampler.engine.counters import Counters
from rl_sampler.tools import search
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.search import NOTHING, Document, SearchTool, described
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult
from rl_sampler.tools.toolbox import CUT, Toolbox

GOOD = {"document": {"id": "7", "contents": '"Evan Morris"\nA lobbyist of Genentech.'}, "score": 1}
PARTED = {"document": {"title": "Salt", "text": "Sodium chloride."}, "score": 0.5}
NO_TITLE = {"document": {"contents": "Only a text."}}


@dataclass
class Service:
    """Answers each query with the next reply: a status and a body; the last one stays."""

    replies: list[tuple[int, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    hanging: asyncio.Event | None = None
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        self.tokens.append(request.headers.get("Authorization"))
        if self.hanging is not None:
            await self.hanging.wait()
        status, body = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    application = web.Application()
    application.router.add_post("/retrieve", service.answer)
    async with TestServer(application) as server:
        service.url = str(server.make_url("/retrieve"))
        yield service


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PAUSES_SECONDS", (0.0, 0.0))


def section(url: str, **options: Any) -> Search:
    return Search.model_validate({"url": url, **options})


async def searched(
    service: Service, query: object = "who", *, token: Path = Path("none"), **options: Any
) -> ToolResult:
    async with open_outside() as session:
        tool = SearchTool(section(service.url, **options), session=session, token_file=token)
        return await tool.call("search", {"query": query})


async def listed(service: Service, **options: Any) -> Tool:
    async with open_outside() as session:
        tool = SearchTool(section(service.url, **options), session=session, token_file=Path("none"))
        (only,) = await tool.tools()
        return only


@pytest.mark.parametrize(
    ("hits", "shown"),
    [
        ([GOOD], "Doc 1 (Title: Evan Morris)\nA lobbyist of Genentech."),
        (
            [PARTED, NO_TITLE],
            "Doc 1 (Title: Salt)\nSodium chloride.\n\nDoc 2\nOnly a text.",
        ),
        ([], NOTHING),
    ],
)
async def test_documents_are_shown_best_first(
    service: Service, hits: list[Any], shown: str
) -> None:
    service.replies = [(200, {"result": [hits], "took": 3})]
    assert await searched(service) == ToolResult(text=shown)
    assert service.asked == [{"queries": ["who"], "topk": 3, "return_scores": True}]


async def test_no_more_documents_are_shown_than_wanted(service: Service) -> None:
    service.replies = [(200, {"result": [[GOOD, PARTED, NO_TITLE]]})]
    result = await searched(service, topK=1)
    assert "Doc 1" in result.text
    assert "Doc 2" not in result.text
    assert service.asked[0]["topk"] == 1


WRONG = {
    "no JSON": "<html>",
    "no result": {"results": []},
    "no list for the query": {"result": []},
    "lists for two queries": {"result": [[], []]},
    "documents without their frame": {"result": [[{"contents": "a"}]]},
    "documents without a text": {"result": [[{"document": {"body": "a"}}]]},
    "a text for a document": {"result": [[{"document": "a"}]]},
    "nesting without end": "[" * 100_000,
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
async def test_a_reply_of_another_form_means_that_the_service_is_down(
    service: Service, body: Any
) -> None:
    service.replies = [(200, body)]
    with pytest.raises(ToolDownError, match=r"answers in another form .* check agent\.search\.url"):
        await searched(service)


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_query_is_asked_again_where_the_service_failed(
    service: Service, status: int
) -> None:
    service.replies = [(status, ""), (status, ""), (200, {"result": [[GOOD]]})]
    assert "Genentech" in (await searched(service)).text
    assert len(service.asked) == 3


@pytest.mark.parametrize(
    ("status", "message"),
    [(503, "answers 503"), (404, "answers 404: check the url and token of agent.search")],
)
async def test_a_service_that_keeps_failing_is_down_and_no_result(
    service: Service, status: int, message: str
) -> None:
    service.replies = [(status, "")]
    with pytest.raises(
        ToolDownError, match=f"^the search service at {service.url} {message}$"
    ) as down:
        await searched(service)
    assert down.value.kind == SEARCH_SERVICE
    assert len(service.asked) == 3


async def test_a_service_that_does_not_answer_in_time_is_down(service: Service) -> None:
    service.replies, service.hanging = [(200, {"result": [[]]})], asyncio.Event()
    with pytest.raises(ToolDownError, match="did not answer within 1 s"):
        await listed(service, timeoutSeconds=1)
    service.hanging.set()


async def test_a_service_that_cannot_be_reached_is_down() -> None:
    nowhere = Service(url="http://127.0.0.1:9/retrieve")
    with pytest.raises(ToolDownError, match="cannot be reached"):
        await searched(nowhere)
    with pytest.raises(ToolDownError, match="cannot be reached"):
        await listed(nowhere)


async def test_a_node_s_own_server_is_not_asked_behind_a_redirect() -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "http://169.254.169.254/retrieve"})

    application = web.Application()
    application.router.add_post("/retrieve", redirect)
    async with TestServer(application) as server:
        with pytest.raises(ToolDownError, match="cannot be reached"):
            await searched(Service(url=str(server.make_url("/retrieve"))))


async def test_a_reply_that_is_too_large_is_not_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "MAX_REPLY_BYTES", 1 << 20)
    service.replies = [(200, {"result": [[{"document": {"text": "a" * (1 << 20)}}]]})]
    with pytest.raises(ToolDownError, match="answered with more than 1 MiB"):
        await searched(service)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_query_that_the_service_refuses_is_the_policy_s(
    service: Service, status: int
) -> None:
    service.replies = [(status, "only  nouns,\nplease")]
    result = await searched(service)
    assert result.failed
    assert result.text == f"The search refused the query: {status}: only nouns, please"
    assert len(service.asked) == 1
    with pytest.raises(ToolDownError, match="only nouns, please"):
        await listed(service)


@pytest.mark.parametrize("query", [None, "", " \n", 7, ["who"], "a" * 2001])
async def test_a_query_that_is_none_is_not_asked(service: Service, query: object) -> None:
    result = await searched(service, query)
    assert result.failed
    assert result.text
    assert service.asked == []


async def test_the_policy_is_told_what_the_collection_holds(service: Service) -> None:
    service.replies = [(200, {"result": [[]]})]
    plain = await listed(service)
    assert (plain.name, plain.description) == ("search", "Searches a collection of documents.")
    assert plain.parameters["required"] == ["query"]
    assert (await listed(service, description="Finds lockers.")).description == "Finds lockers."


async def test_the_token_is_read_for_each_query(service: Service, tmp_path: Path) -> None:
    service.replies = [(200, {"result": [[]]})]
    token, named = tmp_path / "token", {"tokenSecretRef": {"name": "keys"}}
    for value in ("old", "new"):
        token.write_text(f"{value}\n")
        await searched(service, token=token, **named)
    await searched(service, token=token)
    assert service.tokens == ["Bearer old", "Bearer new", None]
    with pytest.raises(ToolDownError, match="check its tokenSecretRef"):
        await searched(service, token=tmp_path / "absent", **named)


TEXTS = st.text(max_size=30)
DOCUMENTS = st.lists(
    st.builds(Document, contents=TEXTS, title=TEXTS, text=TEXTS)
    | st.builds(Document, contents=TEXTS),
    max_size=8,
)


class Found:
    """A source that finds these documents, whatever it is asked."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents

    async def tools(self) -> list[Tool]:
        return [Tool(name="search")]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult(text=described(self.documents))

    async def close(self) -> None:
        pass


async def cut(documents: list[Document], longest: int) -> str:
    box = Toolbox(
        [],
        secrets=Path("none"),
        longest=longest,
        counters=Counters(),
        own={"Search": Found(documents)},
    )
    return (await (await box.open()).call(WantedCall(tool="search", arguments="{}"))).result


@given(DOCUMENTS, st.integers(1, 200))
def test_a_result_stays_within_its_bound_and_the_best_document_comes_first(
    documents: list[Document], longest: int
) -> None:
    shown = described(documents)
    result = asyncio.run(cut(documents, longest))
    assert result == (shown if len(shown) <= longest else shown[:longest] + CUT)
    assert shown.startswith(documents[0].shown(1) if documents else NOTHING)
