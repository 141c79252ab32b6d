"""Counts what routers choose in an update, and adds their losses to its gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rl_trainer.algorithm import routing
from rl_trainer.algorithm.routing import Pull, Routed
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Tally
from rl_trainer.model.experts.routers import Routers
from rl_trainer.model.models import Models


@contextlib.contextmanager
def applied(
    models: Models, samples: Sequence[Sample], *, tally: Tally | None, scale: float = 1.0
) -> Iterator[None]:
    """Accumulate an update's gradient with the losses of its routers; a collective call.

    Args:
        models: of which the policy may have experts.
        samples: of the update, of all ranks.
        tally: where choices are counted; None: they are not.
        scale: what the losses' gradient is multiplied by.
    """
    routers = models.policy.routers
    if routers is None:
        yield
        return
    pull = _pull(models, routers, samples, scale=scale)
    if tally is None:
        with routers.pulled(pull):
            yield
        return
    with routers.counted() as counted, routers.pulled(pull):
        yield
    tally.routed += _of_all(models, counted)


def _pull(
    models: Models, routers: Routers, samples: Sequence[Sample], *, scale: float
) -> Pull | None:
    section = models.algorithm.experts
    if not section.load_balance_coefficient and not section.z_loss_coefficient:
        return None
    return routing.pull(
        _loads(models, routers, samples) if section.load_balance_coefficient else None,
        tokens=sum(len(sample) for sample in samples),
        layers=routers.layers,
        balance=scale * section.load_balance_coefficient,
        square=scale * section.z_loss_coefficient,
    )


def _loads(models: Models, routers: Routers, samples: Sequence[Sample]) -> Tensor:
    """Each expert's share of its layer's choices, over the whole update, before its gradient.

    The loss is no sum over microbatches: its gradient in each needs the choices in all of them.
    """
    with routers.counted() as counted, torch.no_grad():
        for packed in models.microbatches(samples):
            models.policy.states(packed)
    models.rest()
    loads = routing.together(_of_all(models, counted)).loads
    return loads.to(models.policy.device)


def _of_all(models: Models, counted: list[Routed]) -> list[Routed]:
    return [part for own in models.world.gather_tokens(counted) for part in own]
