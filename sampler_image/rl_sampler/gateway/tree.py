"""The tokens of a program's requests, as a tree of responses.

A request whose messages extend those of an earlier one, with its response, continues its tokens:
what the policy was shown and what it sampled is never rendered or tokenized again. A request that
changes the past opens a branch. At the end of the episode each branch is a sequence of the rollout.
A response is generated in one sequence only; branches behind it show it as context.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import TokenRange, Turn, moved
from rl_contracts.documents.saved_turn import SavedTurn
from rl_sampler.agents import saving
from rl_sampler.agents.chat import Chat
from rl_sampler.agents.prompt import PromptError
from rl_sampler.agents.trace import SampledResponse, Trace
from rl_sampler.gateway.asked import Asked, Message, RefusedRequestError, chain, following
from rl_sampler.gateway.rendering import behind_a_response, whole


@dataclass(slots=True, kw_only=True, eq=False)
class Node:
    """A response of the policy."""

    number: int
    """In the order in which responses ended."""
    parent: Node | None
    """The response that its request continued."""
    shown: array[int]
    """Tokens between the parent's response and this one; without a parent the whole prompt."""
    response: SampledResponse
    text: str
    queue_seconds: float
    generate_seconds: float
    children: list[Node] = field(default_factory=list)
    taken: bool = False
    """A request has continued it."""

    def path(self) -> list[Node]:
        """The responses up to this one, from the first on."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def tokens(self) -> list[int]:
        """All tokens up to the end of this response."""
        tokens: list[int] = []
        for each in self.path():
            tokens += each.shown
            tokens += each.response.tokens
        return tokens

    def turn(self, request: TokenRange, response: TokenRange) -> Turn:
        """The record of this response, whose tokens are at these places."""
        return Turn(
            request=request,
            response=response,
            stop_reason=self.response.reason,
            text=self.text,
            queue_seconds=self.queue_seconds,
            generate_seconds=self.generate_seconds,
        )

    def saved(self, shared: dict[str, Any]) -> SavedTurn:
        """This response with the tokens before it that no other response was saved with.

        Experts are left out: choices of experts are not replayed together with programs.

        Args:
            shared: as ``saving.of_member``.
        """
        shown, output = len(self.shown), len(self.response.tokens)
        return saving.numbered(
            shared,
            self.number,
            after=None if self.parent is None else self.parent.number,
            tokens=pack_int32([*self.shown, *self.response.tokens]),
            mask=bytes(shown) + b"\x01" * output,
            logprobs=pack_float32([*[0.0] * shown, *self.response.logprobs]),
            spans=moved(self.response.spans, by=shown),
            images=[],
            turn=self.turn(
                TokenRange(start=0, end=shown), TokenRange(start=shown, end=shown + output)
            ),
            shown="[]",
            heard=0,
        )

    @property
    def is_branch(self) -> bool:
        """Whether it begins a sequence."""
        return self.parent is None or self.parent.children[0] is not self


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the responses to a request belong."""

    parent: Node | None
    shown: Sequence[int]
    digest: bytes
    """Of the request's messages and tools."""
    context: list[int]
    """All that the policy is shown."""

    @property
    def routed(self) -> int:
        """Tokens of the context whose experts are known where the engine is asked for them.

        All that were run; the last of a response was not.
        """
        return 0 if self.parent is None else len(self.context) - len(self.shown) - 1


class Tree:
    """The responses of one session."""

    def __init__(self) -> None:
        self._roots: list[Node] = []
        self._by_digest: dict[bytes, list[Node]] = {}
        self.nodes: list[Node] = []
        """All responses by number."""
        self.size = 0
        """Tokens of all sequences together."""

    def __len__(self) -> int:
        """Number of responses."""
        return len(self.nodes)

    def place(self, asked: Asked, chat: Chat) -> Place:
        """Where a request continues, or a new root.

        Args:
            asked: the request.
            chat: the model's template with the request's tools.

        Raises:
            RefusedRequestError: the chat template refuses the messages.
        """
        digests = chain(asked.tools, asked.messages)
        node, at = self._continued(digests, asked.messages)
        if node is not None:
            between = _tokens_between(node, asked.messages[at:], chat)
            if between is not None:
                node.taken = True
                context = node.tokens() + between
                return Place(parent=node, shown=between, digest=digests[-1], context=context)
        try:
            prompt = whole(chat, asked.messages)
        except PromptError as error:
            raise RefusedRequestError(str(error), parameter="messages") from error
        return Place(parent=None, shown=prompt, digest=digests[-1], context=prompt)

    def add(
        self,
        place: Place,
        message: Message,
        response: SampledResponse,
        *,
        text: str,
        **seconds: Any,
    ) -> Node:
        """Add a response.

        Args:
            place: of its request.
            message: the message that a later request repeats.
            response: as it was sampled.
            text: all of it, decoded.
            seconds: ``queue_seconds`` and ``generate_seconds``.
        """
        node = Node(
            number=len(self.nodes),
            parent=place.parent,
            shown=array("i", place.shown),
            response=response,
            text=text,
            **seconds,
        )
        self.nodes.append(node)
        (self._roots if node.parent is None else node.parent.children).append(node)
        grown = len(place.context) if node.is_branch else len(node.shown)
        self.size += grown + len(response.tokens)
        self._by_digest.setdefault(following(place.digest, message), []).append(node)
        return node

    def sequences(self) -> list[list[Node]]:
        """The responses of each sequence; the sequence with the last response comes last."""
        return sorted(map(_sequence, self._branches()), key=lambda nodes: nodes[-1].number)

    def write(self, trace: Trace) -> list[Turn]:
        """Append all sequences to a trace; returns their turns in the same order."""
        turns = []
        for nodes in self.sequences():
            parent = nodes[0].parent
            trace.restart([*(parent.tokens() if parent else ()), *nodes[0].shown])
            for each in () if parent is None else parent.path():
                trace.route(each.response.routing)
            for node in nodes:
                if node is not nodes[0]:
                    trace.show(node.shown)
                request, response, _ = trace.take(node.response)
                turns.append(node.turn(request, response))
        return turns

    def _continued(
        self, digests: Sequence[bytes], messages: Sequence[Message]
    ) -> tuple[Node | None, int]:
        """The response behind the longest known beginning, and the number of its messages.

        Where several responses read alike, the latest that no request has continued. Messages of
        the policy behind it were never sampled, so such a request is no continuation.
        """
        for at in range(len(messages) - 1, 0, -1):
            if messages[at].role == "assistant":
                return None, 0
            known = self._by_digest.get(digests[at])
            if known:
                fresh = [node for node in known if not node.taken]
                return (fresh or known)[-1], at
        return None, 0

    def _branches(self) -> Iterator[Node]:
        waiting = list(self._roots)
        while waiting:
            node = waiting.pop()
            yield node
            for each in _sequence(node):
                waiting += each.children[1:]


def _sequence(node: Node) -> list[Node]:
    nodes = [node]
    while nodes[-1].children:
        nodes.append(nodes[-1].children[0])
    return nodes


def _tokens_between(node: Node, messages: Iterable[Message], chat: Chat) -> list[int] | None:
    """Tokens behind a response; None where the template cannot show the messages there."""
    try:
        return behind_a_response(chat, list(messages), response=node.response.tokens)
    except PromptError:
        return None
