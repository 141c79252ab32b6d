"""Prompts with placeholders, and conversations as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template

from rl_contracts.errors import Refusal, RefusedError


def prompt_of(text: str, placeholders: Sequence[str], *, field: str) -> Template:
    """The template of a prompt.

    Args:
        text: of the manifest, or ours.
        placeholders: that are filled in.
        field: where the manifest has it.

    Raises:
        RefusedError: it has a placeholder that nobody fills, or a ``$`` that begins none.
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
            message=f"It has an unknown placeholder ${{{unknown[0]}}}."
            if unknown
            else "It has a $ that begins no placeholder.",
            remedy=f"Use {known}; write $$ for a dollar sign.",
        )
    )


def transcript(messages: Sequence[Mapping[str, str]]) -> str:
    """A conversation, one message after the other."""
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)
