"""The routers of a model's layers with experts: counted, and pulled on.

Hooks on the routers see their logits and choices. A layer that gradient checkpointing runs again
in the backward pass is counted once, because only what runs ``over`` a microbatch counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_contracts.capacity.experts import ROUTERS
from rl_trainer.algorithm import routing
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.routing import Pull, Routed
from rl_trainer.distributed.context_ranks import ContextRanks

CLASSES = ("TopKRouter", "TopkRouter")
"""How transformers' names of router classes end. They return logits, gates and indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A microbatch that runs through the layers, or has run and waits for its backward pass."""

    tokens: int
    """This rank's, without what fills its row up."""
    filler: bool


class Routers:
    """The routers of one module."""

    def __init__(self, module: Any) -> None:
        """Watch a module's routers; see ``of``."""
        self._scores = ROUTERS[module.config.model_type]
        self._routers = _routers(module)
        self._pass: Pass | None = None
        self._counted: list[tuple[int, list[tuple[Tensor, ...]]]] | None = None
        self._running = False
        self._pull: Pull | None = None
        for layer, router in enumerate(self._routers):
            router.register_forward_hook(partial(self._routed, layer))

    @property
    def layers(self) -> int:
        """Layers with experts, ≥ 1."""
        return len(self._routers)

    @contextlib.contextmanager
    def over(self, packed: Packed, context: ContextRanks | None) -> Iterator[None]:
        """Run the layers over a microbatch; its backward pass may come later, before the next."""
        tokens = packed.tokens.shape[1]
        if context is not None:
            first, last = context.span(tokens)
            tokens = max(0, min(tokens, last) - first)
        self._pass = Pass(tokens=tokens, filler=packed.filler)
        if self._counted is not None and not packed.filler:
            self._counted.append((tokens, []))
        self._running = True
        try:
            yield
        finally:
            self._running = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Run the module as another model, beside a microbatch that waits for its backward pass."""
        kept, self._pass = self._pass, None
        try:
            yield
        finally:
            self._pass = kept

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[Routed]]:
        """Count what runs meanwhile; the list has one entry in the end, of this rank's tokens."""
        result: list[Routed] = []
        self._counted = []
        try:
            yield result
            result.append(self._sum(self._counted))
        finally:
            self._counted = None

    @contextlib.contextmanager
    def pulled(self, pull: Pull | None) -> Iterator[None]:
        """Add to the gradients of what runs meanwhile."""
        self._pull = pull
        try:
            yield
        finally:
            self._pull = None

    def _routed(self, layer: int, router: Any, given: Any, outputs: Any) -> Any:
        del router, given
        now = self._pass
        if now is None:
            return None
        logits, gates, chosen = outputs
        own = logits[: now.tokens]
        if self._running and self._counted is not None and not now.filler:
            with torch.no_grad():
                parts = routing.measured(own.detach(), chosen[: now.tokens], self._scores)
            self._counted[-1][1].append(parts)
        pulls = self._pull is not None and not now.filler and torch.is_grad_enabled()
        if self._pull is None or not pulls or not logits.requires_grad:
            return None
        loss = self._pull.of(layer, own, self._scores)
        return logits, routing.attached(gates, loss), chosen

    def _sum(self, counted: list[tuple[int, list[tuple[Tensor, ...]]]]) -> Routed:
        experts = self._routers[0].weight.shape[0]
        empty = Routed(
            tokens=0,
            chosen=torch.zeros((self.layers, experts), dtype=torch.int64),
            probabilities=torch.zeros((self.layers, experts), dtype=torch.float64),
            entropies=torch.zeros(self.layers, dtype=torch.float64),
            squares=torch.zeros(self.layers, dtype=torch.float64),
        )
        parts = [empty]
        for tokens, layers in counted:
            chosen, each, entropies, squares = (
                torch.stack(values).cpu() for values in zip(*layers, strict=True)
            )
            parts.append(
                Routed(
                    tokens=tokens,
                    chosen=chosen,
                    probabilities=each,
                    entropies=entropies,
                    squares=squares,
                )
            )
        return routing.together(parts)


def of(module: Any) -> Routers | None:
    """The routers of a model; None where it has none, or is of a family that is not known."""
    if module.config.model_type not in ROUTERS or not _routers(module):
        return None
    return Routers(module)


def _routers(module: Any) -> list[Any]:
    return [each for each in module.modules() if type(each).__name__.endswith(CLASSES)]
