"""Prompts with placeholders, conversations as text, and the check of a text reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import Template

from rl_contracts.errors import Refusal, RefusedError
from rl_sampler.completions.errors import UnreadableError


def prompt_of(text: str, placeholders: Sequence[str], *, field: str) -> Template:
    """Parse a prompt with placeholders.

    Args:
        text: of the manifest, or a default.
        placeholders: the names that will be filled in.
        field: path of the prompt in the manifest.

    Raises:
        RefusedError: the prompt has an unknown placeholder, or a ``$`` that begins no placeholder.
    """
    template = Template(text)
    unknown = sorted(set(template.get_identifiers()) - set(placeholders))
    if template.is_valid() and not unknown:
        return template
    known = ", ".join(f"${{{placeholder}}}" for placeholder in placeholders)
    raise RefusedError(
        Refusal(
            field=field,
            value=text[:200],
            reason="PromptMalformed",
            message=f"The prompt has an unknown placeholder ${{{unknown[0]}}}."
            if unknown
            else "The prompt has a $ that begins no placeholder.",
            remedy=f"Use {known}; write $$ for a dollar sign.",
        )
    )


def transcript(messages: Sequence[Mapping[str, str]]) -> str:
    """A conversation as text: ``role: content`` for each message."""
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def non_empty(speaker: str) -> Callable[[str], str]:
    """A reader of replies that raises UnreadableError for an empty reply of ``speaker``."""

    def read(reply: str) -> str:
        if not reply.strip():
            raise UnreadableError(f"the reply of {speaker} is empty")
        return reply.strip()

    return read
