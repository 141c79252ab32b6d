"""Conversations as tokens, and which of them the assistant said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.documents.task import ImagePart, Message
from rl_contracts.errors import RLError
from rl_contracts.images.placeholders import PlaceholderError, Placeholders

GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""The block of a chat template that marks what the assistant generates."""


class UntrainableError(RLError):
    """A conversation cannot be trained; the message ends a sentence about it."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation of T tokens."""

    tokens: list[int]
    mask: list[int]
    """1 where the assistant generates the token, the one that ends its turn included."""
    images: list[ImageSpan] = field(default_factory=list)
    """Which tokens stand for images."""


class ChatTemplate:
    """Tokenizer and chat template of one model.

    A template with ``{% generation %}`` blocks says itself what the assistant generates. With any
    other, each of its turns is what the conversation with the turn has more than the one before it
    with the generation prompt, up to the token that ends a turn. Both parts are tokenized by
    themselves, as samplers do: there, too, the prompt is encoded without the response.

    Args:
        tokenizer: of transformers, with a chat template.
        stop_tokens: ids that end a turn.
        arguments: what the template is given besides the messages.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        stop_tokens: Sequence[int],
        arguments: Mapping[str, Any] | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        self._arguments, self._placeholders = arguments or {}, placeholders
        self._tokenizer, self._stops = tokenizer, frozenset(stop_tokens)
        self._marks = bool(GENERATION.search(str(tokenizer.chat_template)))

    @classmethod
    def load(cls, folder: Path, arguments: Mapping[str, Any] | None = None) -> ChatTemplate:
        """From a model in Hugging Face layout that has both."""
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        stop_tokens = {tokenizer.eos_token_id} - {None}
        for name in ("generation_config.json", "config.json"):
            path = folder / name
            named = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
            stop_tokens |= {named} if isinstance(named, int) else set(named or ())
        config = json.loads((folder / "config.json").read_bytes())
        return cls(
            tokenizer,
            stop_tokens=sorted(stop_tokens),
            arguments=arguments,
            placeholders=Placeholders.of(config),
        )

    def encode(self, messages: Sequence[Message]) -> Encoded:
        """Tokens of a conversation that ends with an assistant's turn.

        Raises:
            UntrainableError: the template refuses it, has no room for the assistant's turns in
                what it renders, or nothing of it was generated.
        """
        chat = [message.chat for message in messages]
        try:
            encoded = self._marked(chat) if self._marks else self._by_turns(chat)
        except (TemplateError, ValueError, TypeError) as error:
            raise UntrainableError(f"the chat template refuses it: {error}") from error
        if not any(encoded.mask):
            raise UntrainableError("nothing of it was said by the assistant")
        if encoded.mask[0]:
            raise UntrainableError("its first token is the assistant's: nothing predicts it")
        return self._with_images(encoded, [part for each in messages for part in each.images])

    def _with_images(self, encoded: Encoded, images: Sequence[ImagePart]) -> Encoded:
        if not images:
            return encoded
        if self._placeholders is None:
            raise UntrainableError("it has images, and the model sees none")
        shown = [
            token
            for token, is_assistant in zip(encoded.tokens, encoded.mask, strict=True)
            if not is_assistant
        ]
        try:
            self._placeholders.check(shown, images)
        except PlaceholderError as error:
            raise UntrainableError(f"its tokens {error}") from error
        counts, tokens, mask = iter(images), list[int](), list[int]()
        for token, is_assistant in zip(encoded.tokens, encoded.mask, strict=True):
            stands = token == self._placeholders.token and not is_assistant
            count = self._placeholders.count(next(counts)) if stands else 1
            tokens += [token] * count
            mask += [is_assistant] * count
        return Encoded(tokens, mask, list(self._placeholders.spans(tokens, mask, images, start=0)))

    def _marked(self, chat: list[dict[str, object]]) -> Encoded:
        rendered = self._tokenizer.apply_chat_template(
            chat,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **self._arguments,
        )
        return Encoded(list(rendered["input_ids"]), list(rendered["assistant_masks"]))

    def _by_turns(self, chat: list[dict[str, object]]) -> Encoded:
        tokens: list[int] = []
        mask: list[int] = []
        before = ""
        for index in (at for at, message in enumerate(chat) if message["role"] == "assistant"):
            opened = self._render(chat[:index], prompt=True)
            closed = self._render(chat[: index + 1], prompt=False)
            if not opened.startswith(before) or not closed.startswith(opened):
                raise UntrainableError(
                    "the chat template renders earlier turns otherwise once others follow: give "
                    "it {% generation %} blocks, or leave a single turn of the assistant"
                )
            shown = self._encode(opened.removeprefix(before))
            assistant_tokens = self._encode(closed.removeprefix(opened))
            tokens += [*shown, *assistant_tokens]
            mask += [*[0] * len(shown), *self._own(assistant_tokens)]
            before = closed
        return Encoded(tokens, mask)

    def _own(self, tokens: Sequence[int]) -> list[int]:
        """1 up to the first token that ends a turn; what a template adds behind it is shown."""
        ends = [at for at, token in enumerate(tokens) if token in self._stops]
        length = ends[0] + 1 if ends else len(tokens)
        return [1] * length + [0] * (len(tokens) - length)

    def _render(self, chat: Sequence[Mapping[str, object]], *, prompt: bool) -> str:
        text: str = self._tokenizer.apply_chat_template(
            list(chat), add_generation_prompt=prompt, tokenize=False, **self._arguments
        )
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids
