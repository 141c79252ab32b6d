"""Converts chat messages to token ids and responses to text. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from rl_contracts.documents.task import Message
from rl_contracts.errors import RLError
from rl_contracts.images.placeholders import PlaceholderError, Placeholders
from rl_sampler.tools import harmony


class PromptError(RLError):
    """No sampler can sample this task's prompt; the user must change the job or its data."""


class Prompts:
    """Tokenizer and chat template of one model."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        vocabulary: int,
        stop_tokens: tuple[int, ...],
        arguments: Mapping[str, Any] | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        """Use a tokenizer.

        Args:
            tokenizer: of transformers.
            vocabulary: number of token ids that the model has.
            stop_tokens: token ids that end a turn.
            arguments: what the chat template is given besides messages and tools.
            placeholders: of images; None where the model sees none.
        """
        self.placeholders = placeholders
        self._arguments = arguments or {}
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self.stop_tokens = stop_tokens

    def encode(
        self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Token ids of a conversation, up to the start of the model's turn.

        Args:
            messages: the whole conversation.
            tools: those that the model may call, in the form that chat templates take.

        Raises:
            PromptError: the chat template refuses the messages, or the tokenizer gives ids that
                the model does not have.
        """
        chat = [message.chat for message in messages]
        tokens = self.tokens(self.render(chat, tools=tools))
        images = [image for message in messages for image in message.images]
        if not images:
            return tokens
        if self.placeholders is None:
            raise PromptError("the prompt shows images, and the model sees none")
        try:
            return self.placeholders.expanded(tokens, images)
        except PlaceholderError as error:
            raise PromptError(f"the tokens of the prompt {error}") from error

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]]
    ) -> str:
        """Text of a conversation, up to the start of the model's turn; raises as ``encode``."""
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=True,
                tokenize=False,
                **self._arguments,
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise PromptError(f"the chat template refuses the prompt: {error}") from error
        return text

    def tokens(self, text: str) -> list[int]:
        """Token ids of rendered text; raises as ``encode``."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        if not ids:
            raise PromptError("the chat template renders the messages to an empty prompt")
        if not 0 <= min(ids) <= max(ids) < self._vocabulary:
            # Hazard: an id outside the vocabulary kills the engine.
            raise PromptError(
                f"the tokenizer gives token id {max(ids)}, but the model has only "
                f"{self._vocabulary} tokens: use the tokenizer of the model"
            )
        return ids

    @property
    def stop_texts(self) -> list[str]:
        """Texts of the tokens that end a turn."""
        texts: list[str] = self._tokenizer.convert_ids_to_tokens(list(self.stop_tokens))
        return texts

    @property
    def message_ends(self) -> list[str]:
        """Texts of the tokens behind the policy's messages in a conversation.

        Templates of the harmony format (gpt-oss) end them otherwise than the policy ends its turn.
        """
        special = {each.content for each in self._tokenizer.added_tokens_decoder.values()}
        return [*self.stop_texts, harmony.END] if special >= harmony.SPECIAL else self.stop_texts

    def harmless(self, text: str) -> str:
        """Text from outside with its special tokens broken up: a tool must not end a turn."""
        for token in self._special:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    @cached_property
    def _special(self) -> list[str]:
        """Texts of the special tokens; the tokenizer takes long to list them."""
        added = self._tokenizer.added_tokens_decoder.values()
        return [each.content for each in added if each.special]

    def harmless_json(self, value: Any) -> Any:
        """A value of JSON with the special tokens in all of its texts broken up.

        As text it would hide a token with a quotation mark, before which JSON writes a backslash.
        """
        if isinstance(value, str):
            return self.harmless(value)
        if isinstance(value, Mapping):
            return {
                self.harmless_json(key): self.harmless_json(each) for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.harmless_json(each) for each in value]
        return value

    def decode(self, output: Sequence[int]) -> str:
        """Text of a response, without the token that ended the turn."""
        ends = bool(output) and output[-1] in self.stop_tokens
        text: str = self._tokenizer.decode(
            list(output[:-1] if ends else output), skip_special_tokens=False
        )
        return text


def load_prompts(
    folder: Path, arguments: Mapping[str, Any] | None = None, *, template: str | None = None
) -> Prompts:
    """Load tokenizer and chat template of a model in Hugging Face layout.

    Args:
        folder: of the model.
        arguments: ``agent.chatTemplateArguments``.
        template: ``agent.chatTemplate``; None: the model's own.

    Raises:
        PromptError: there is no usable tokenizer, or no chat template.
    """
    from transformers import AutoTokenizer  # takes seconds: imported after the agent registered

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise PromptError(f"cannot load the model's tokenizer: {error}") from error
    if template is not None:
        tokenizer.chat_template = template
    if not tokenizer.chat_template:
        raise PromptError("the model's tokenizer has no chat template")
    whole = json.loads((folder / "config.json").read_bytes())
    config = whole.get("text_config", whole)
    return Prompts(
        tokenizer,
        vocabulary=int(config["vocab_size"]),
        stop_tokens=stop_tokens(folder, tokenizer_eos=tokenizer.eos_token_id),
        arguments=arguments,
        placeholders=Placeholders.of(whole),
    )


def stop_tokens(folder: Path, *, tokenizer_eos: int | None) -> tuple[int, ...]:
    """Token ids that end a turn: the union of generation config, config and tokenizer."""
    tokens = {tokenizer_eos} if tokenizer_eos is not None else set()
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        named = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
        tokens |= {named} if isinstance(named, int) else set(named or ())
    return tuple(sorted(tokens))


def check_length(prompt: Sequence[int], *, most: int | None) -> None:
    """Raise PromptError where a prompt has more tokens than ``agent.sampling.maxPromptTokens``."""
    if most is not None and len(prompt) > most:
        raise PromptError(
            f"a prompt of {len(prompt)} tokens is longer than spec.agent.sampling.maxPromptTokens "
            f"= {most}: raise the limit or leave the record out"
        )


def tokens_left(*, prompt: int, turn: int, context: int, engine: int) -> int:
    """How many tokens may be generated.

    Args:
        prompt: tokens of the prompt.
        turn: most tokens of the response, ``maxTokensPerTurn``.
        context: most tokens of prompt and response together, ``maxContextTokens``.
        engine: most tokens of a request that the engine takes.

    Raises:
        PromptError: the prompt leaves no room for a token.
    """
    left = min(turn, context - prompt, engine - prompt)
    if left < 1:
        limit = (
            f"spec.agent.sampling.maxContextTokens = {context}"
            if context <= engine
            else f"the {engine} tokens that the engine takes"
        )
        raise PromptError(
            f"a prompt of {prompt} tokens leaves no room for a response within {limit}: "
            "raise the limit or leave the record out"
        )
    return left
