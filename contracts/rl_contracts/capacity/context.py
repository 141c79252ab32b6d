"""Whether a model was made for sequences as long as the manifest allows."""

from __future__ import annotations

from rl_contracts.errors import Refusal
from rl_contracts.spec.agent.agents import Sampling
from rl_contracts.spec.resources import RLJobSpec

FIELD = "spec.agent.sampling.maxContextTokens"
DEFAULT: int = Sampling.model_fields["max_context_tokens"].default


def context_refusal(spec: RLJobSpec, longest: int | None) -> Refusal | None:
    """The refusal of sequences that are longer than the model's positions.

    The default is no wish: with a shorter model it means the model's length, and is not refused.

    Args:
        spec: the manifest.
        longest: tokens that the model was made for, ``Shape.max_positions``; None: not known.
    """
    asked = spec.agent.sampling.max_context_tokens
    if longest is None or asked <= longest or asked == DEFAULT:
        return None
    return Refusal(
        field=FIELD,
        value=str(asked),
        reason="ContextTooLong",
        message=f"The model was made for at most {longest} tokens (max_position_embeddings of its "
        "config.json, times the factor of a linear or dynamic rope_scaling): neither engine nor "
        "trainer takes more.",
        remedy=f"Set it to {longest} or less, or name a model with a longer context.",
    )
