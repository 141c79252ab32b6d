"""Options for mixtures of experts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model


class Experts(Model):
    """Layers with experts: which of them a token is trained with, and losses on their routers."""

    routing: Literal["Own", "Replay"] = "Own"
    """Experts that a token passes when it is trained. `Own`: those that the trainer's routers
    choose. `Replay`: those that the engine chose when it sampled, which it then returns with the
    tokens. Refused for models without experts and for shared pools."""
    load_balance_coefficient: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the load-balance loss, which is 1 where each expert gets equally many tokens and
    more where few get most. 0: none. A value above 0 costs one more forward pass for each update,
    and is refused for models without experts."""
    z_loss_coefficient: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Weight of the router's z-loss, the mean square of the log-sum-exp of a token's router logits,
    which keeps the logits small. 0: none. Refused for models without experts."""
