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
            "kl.controller.kind is {self.kind}: kind Adaptive needs target and horizon, and kind "
            "Fixed takes neither: set both, or remove both",
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


Estimator = Literal["K1", "Abs", "K2", "K3", "Full"]
Gradient = Literal["Plain", "StraightThrough", "Unbiased"]
GRADIENT_RULES = (
    (
        "StraightThrough",
        "self.estimator != 'K2'",
        "is the same as Plain with estimator K2: use Plain",
    ),
    (
        "Unbiased",
        "self.estimator in ['K1', 'K3']",
        "is for estimators K1 and K3, and estimator is {self.estimator}: use another gradient or "
        "estimator",
    ),
)
"""Gradients that an estimator does not have: the gradient, CEL for what it needs, the remedy."""


def _gradient_rules(section: str) -> list[dict[str, str]]:
    return [
        rule(
            f"self.gradient != '{gradient}' || {needed}",
            f"{section}.gradient {gradient} {remedy}",
            field="gradient",
        )
        for gradient, needed, remedy in GRADIENT_RULES
    ]


class KLInLoss(Model):
    """A second penalty, added to each token's loss, beside a penalty on the reward."""

    model_config = rules(*_gradient_rules("kl.loss"))
    estimator: Estimator = "K3"
    """Formula of the KL, as kl.estimator."""
    gradient: Gradient = "Plain"
    """Gradient of the penalty, as kl.gradient."""
    coefficient: Annotated[float, Field(gt=0, le=100)] = 0.001
    """Weight of the penalty; it does not change."""


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
            "!has(self.loss) || self.placement == 'Reward'",
            "kl.loss is a second penalty beside placement Reward, and placement is Loss: remove "
            "loss, or set placement to Reward",
            field="loss",
        ),
        *_gradient_rules("kl"),
    )
    placement: Literal["Loss", "Reward"] = "Loss"
    """Where the penalty acts. `Loss`: added to each token's loss. `Reward`: taken from each token's
    reward."""
    estimator: Estimator = "K3"
    """Formula of the KL from log-probabilities of the sampled tokens; `Full` sums over the
    vocabulary instead."""
    gradient: Gradient = "Plain"
    """Gradient of the penalty under placement Loss. `Plain`: of the estimator. `StraightThrough`:
    of K2. `Unbiased`: of the estimator times π / μ."""
    coefficient: Annotated[float, Field(gt=0, le=100)] = 0.001
    """Weight of the penalty; with an adaptive controller the weight at the start."""
    loss: KLInLoss | None = None
    """A second penalty, in the loss, with placement Reward. Unset: none."""
    controller: KLController = Field(default_factory=KLController)
    refresh_every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Steps after which the current policy becomes the reference, again and again. Not with
    training.lora. Unset: never."""

    @property
    def in_loss(self) -> KL | None:
        """The penalty in the loss, with its own estimator, gradient and coefficient."""
        if self.placement == "Loss":
            return self
        return None if self.loss is None else KL(**dict(self.loss))

    @property
    def estimators(self) -> set[str]:
        """Those of both penalties."""
        return {self.estimator} | ({self.loss.estimator} if self.loss is not None else set())
