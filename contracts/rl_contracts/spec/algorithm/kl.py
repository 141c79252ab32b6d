"""How the policy is held near a reference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules


class KLController(Model):
    """How the KL coefficient changes during training."""

    model_config = rules(
        rule(
            "[has(self.target), has(self.horizon)].all(given, given == (self.kind == 'Adaptive'))",
            "kl.controller.target and horizon go with kind Adaptive, which needs both; kind is "
            "{self.kind}",
        )
    )
    kind: Literal["Fixed", "Adaptive"] = "Fixed"
    """`Fixed`: the coefficient stays. `Adaptive`: it rises while the KL is above target and falls
    while it is below."""
    target: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Mean KL of a token, in nats, that the controller aims at. Only with kind Adaptive."""
    horizon: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Number of rollouts over which the coefficient follows; more is slower. More than a fifth of a
    step's rollouts, promptsPerStep * groupSize. Only with kind Adaptive."""


class KL(Model):
    """Penalty on the divergence from a frozen reference model.

    At first that is the model that training starts from. Formulas: docs/reference/algorithms.md.
    """

    model_config = rules(
        rule(
            "self.gradient == 'Plain' || self.placement == 'Loss'",
            "kl.gradient is for placement Loss, and placement is Reward: remove gradient",
            field="gradient",
        ),
        rule(
            "self.gradient != 'StraightThrough' || self.estimator != 'K2'",
            "kl.gradient StraightThrough is what estimator K2 has anyway: use gradient Plain",
            field="gradient",
        ),
        rule(
            "self.gradient != 'Unbiased' || self.estimator in ['K1', 'K3']",
            "kl.gradient Unbiased is for estimators K1 and K3, and estimator is {self.estimator}: "
            "use another gradient or estimator",
            field="gradient",
        ),
    )
    placement: Literal["Loss", "Reward"] = "Loss"
    """Where the penalty acts. `Loss`: added to each token's loss. `Reward`: taken from each token's
    reward."""
    estimator: Literal["K1", "Abs", "K2", "K3", "Full"] = "K3"
    """Formula of the KL from log-probabilities of the sampled tokens; `Full` sums over the
    vocabulary instead."""
    gradient: Literal["Plain", "StraightThrough", "Unbiased"] = "Plain"
    """Gradient of the penalty under placement Loss. `Plain`: of the estimator. `StraightThrough`:
    of K2. `Unbiased`: of the estimator times π / μ."""
    coefficient: Annotated[float, Field(gt=0, le=100)] = 0.001
    """Weight of the penalty; with an adaptive controller the weight at the start."""
    controller: KLController = Field(default_factory=KLController)
    refresh_every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Steps after which the current policy becomes the reference, again and again. Not with
    training.lora. Unset: never."""
