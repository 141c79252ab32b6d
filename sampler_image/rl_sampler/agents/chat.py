"""A group's chat: converts messages to tokens with its template, its tools and the delta rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.task import ImagePart, Message
from rl_contracts.images.placeholders import PlaceholderError, Placeholders
from rl_sampler.agents.continuation import Continuation, TemplateRefusedError, tool_message
from rl_sampler.agents.images import content_of, images_in
from rl_sampler.agents.prompt import Prompts
from rl_sampler.tools.thoughts import OPENED
from rl_sampler.tools.tool import Tool

MARK_TOKENS = 12
"""More than ``<think>`` and the white space after it have, even as bytes."""


class Chat:
    """Converts messages to token ids and responses to text."""

    def __init__(self, prompts: Prompts, tools: Sequence[Mapping[str, Any]]) -> None:
        """Use a model's template with these tools.

        Args:
            prompts: tokenizer and template.
            tools: in the form that chat templates take (``Tool.to_chat``). Special tokens in
                their texts are broken up: no tool may end a turn or speak for the policy.
        """
        tools = [prompts.harmless_json(tool) for tool in tools]
        self._prompts, self._tools = prompts, tools
        self._continuation = Continuation(
            lambda messages: prompts.render(messages, tools=tools),
            prompts.tokens,
            stops=prompts.message_ends,
            tools=[str(tool["function"]["name"]) for tool in tools],
        )

    @property
    def placeholders(self) -> Placeholders | None:
        """Of images; None where the model sees none."""
        return self._prompts.placeholders

    def check(self) -> None:
        """Try the template; raises TemplateRefusedError where it does not allow several turns."""
        for role in ("tool", "user") if self._tools else ("user",):
            self._continuation.check(role=role)

    def check_role(self, role: str) -> None:
        """Try the template with messages of a role; raises TemplateRefusedError."""
        self._continuation.check(role=role)

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a whole conversation, up to the policy's turn; raises PromptError."""
        return self._prompts.encode(messages, tools=self._tools)

    def whole(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of messages in the template's own form, up to the policy's turn.

        Raises:
            PromptError: the chat template refuses them.
        """
        return self._prompts.tokens(self._prompts.render(messages, tools=self._tools))

    def harmless(self, text: str) -> str:
        """Text from outside with its special tokens broken up."""
        return self._prompts.harmless(text)

    def harmless_json(self, value: Any) -> Any:
        """A value of JSON from outside with the special tokens in its texts broken up."""
        return self._prompts.harmless_json(value)

    def between(
        self, messages: Sequence[Mapping[str, Any]], *, response: Sequence[int]
    ) -> list[int]:
        """Token ids of messages between two responses.

        Args:
            messages: at least 1, none of the policy.
            response: the one that they follow. Where it does not end with a token that ends a
                turn (a stop text ended it, or it was cut), that token comes first.

        Raises:
            TemplateRefusedError: the template breaks the delta rule for these messages.
        """
        tokens = self._shown(messages)
        if response and response[-1] in self._prompts.stop_tokens:
            return tokens
        return [self._continuation.closing(str(messages[0]["role"])), *tokens]

    def _shown(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        tokens, images = self._continuation.tokens(messages), images_in(messages)
        if not images:
            return tokens
        assert self.placeholders is not None, "only models that see are shown images"
        try:
            return self.placeholders.expanded(tokens, images)
        except PlaceholderError as error:
            raise TemplateRefusedError(
                "the chat template does not show each image of a message of role "
                f"{messages[0]['role']!r} once: its tokens {error}"
            ) from error

    def opens_thinking(self, context: Sequence[int]) -> bool:
        """Whether a context ends with ``<think>``, so that the response begins with thoughts."""
        return self.decode(context[-MARK_TOKENS:]).rstrip().endswith(OPENED)

    def decode(self, output: Sequence[int]) -> str:
        """Text of a response."""
        return self._prompts.decode(output)

    def result(self, tool: str, text: str, images: Sequence[ImagePart] = ()) -> Mapping[str, Any]:
        """The message with a tool's result; special tokens in the text are made harmless."""
        content = content_of(self._prompts.harmless(text), images)
        return tool_message(self._prompts.harmless(tool), content)

    def outside_message(
        self, role: str, text: str, images: Sequence[ImagePart] = ()
    ) -> Mapping[str, Any]:
        """A message with text from outside; special tokens in it are made harmless."""
        return {"role": role, "content": content_of(self._prompts.harmless(text), images)}


KEPT_CHATS = 16


class Chats:
    """Makes chats; the latest are cached, so that a template is not tried for each group."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._latest: dict[str, Chat] = {}

    @property
    def placeholders(self) -> Placeholders | None:
        """Of images; None where the model sees none."""
        return self._prompts.placeholders

    def harmless(self, text: str) -> str:
        """Text from outside with its special tokens broken up."""
        return self._prompts.harmless(text)

    def of(self, tools: Sequence[Tool], *, several_turns: bool) -> Chat:
        """The chat with these tools.

        Raises:
            TemplateRefusedError: several turns are needed and the template does not allow them.
        """
        listed = [tool.to_chat() for tool in tools]
        key = json.dumps([several_turns, listed], sort_keys=True)
        chat = self._latest.pop(key, None)
        if chat is None:
            chat = Chat(self._prompts, listed)
            if several_turns:
                chat.check()
        self._latest[key] = chat
        if len(self._latest) > KEPT_CHATS:
            del self._latest[next(iter(self._latest))]
        return chat
