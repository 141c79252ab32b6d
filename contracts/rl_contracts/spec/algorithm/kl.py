"""How the policy is held near a reference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import NUMBER, Model, rule, rules


class KLController(Model):
    """How the coefficient changes."""

    model_config = rules(
        rule(
            "[has(self.target), has(self.horizon)].all(one, one == (self.kind == 'Adaptive'))",
            "kl.controller.target and horizon go with kind Adaptive alone",
        )
    )
    kind: Literal["Fixed", "Adaptive"] = "Fixed"
    target: Annotated[float, Field(gt=0, le=1000), NUMBER] | None = None
    """Mean KL of a token that is held."""
    horizon: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Rollouts over which the coefficient follows."""


class KL(Model):
    """Divergence from a frozen reference, at first the model that training starts from."""

    model_config = rules(
        rule(
            "self.gradient == 'Plain' || self.placement == 'Loss'",
            "kl.gradient is for placement Loss",
        ),
        rule(
            "self.gradient != 'StraightThrough' || self.estimator != 'K2'",
            "kl.gradient StraightThrough is what estimator K2 has anyway",
        ),
        rule(
            "self.gradient != 'Unbiased' || self.estimator in ['K1', 'K3']",
            "kl.gradient Unbiased is for estimators K1 and K3",
        ),
    )
    placement: Literal["Loss", "Reward"] = "Loss"
    estimator: Literal["K1", "Abs", "K2", "K3", "Full"] = "K3"
    """``Full`` sums over the vocabulary."""
    gradient: Literal["Plain", "StraightThrough", "Unbiased"] = "Plain"
    coefficient: Annotated[float, Field(gt=0, le=100)] = 0.001
    controller: KLController = Field(default_factory=KLController)
    refresh_every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The policy becomes the reference; unset: never."""
