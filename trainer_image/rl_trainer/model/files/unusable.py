"""Refusals of models that are there but cannot be used."""

from __future__ import annotations

from safetensors import SafetensorError

from rl_contracts.errors import Refusal, RefusedError

UNLOADABLE = (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError)
"""What transformers and safetensors raise of a model that they cannot load."""
KNOWN = (
    "Name a folder with config, tokenizer and safetensors of a causal language model that this "
    "version of transformers knows."
)


def refused(
    uri: str, message: str, *, field: str = "spec.model.uri", remedy: str = KNOWN
) -> RefusedError:
    """The refusal of a model that is there but cannot be used; ``field`` names it."""
    return RefusedError(
        Refusal(
            field=field, value=uri[:200], reason="ModelUnusable", message=message, remedy=remedy
        )
    )


def first_line(error: Exception) -> str:
    """What an error says, in one line without a full stop."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return text if len(text) <= 300 else text[:299] + "…"
