"""The routers of a model's layers with experts.

Hooks on the routers count their choices, add the gradients of their losses, and may replace their
choices by the engine's. A layer that gradient checkpointing runs again in the backward pass is
counted once, because only what runs ``over`` a microbatch counts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_contracts.capacity.experts import ROUTERS
from rl_trainer.algorithm import routing
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.rollout_faults import Replayed
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
    choices: Tensor | None = None
    """int16 ``[t, layers, K]`` of this rank's t tokens, where the engine's are replayed."""


class Routers:
    """The routers of one module."""

    def __init__(self, module: Any, *, replays: bool) -> None:
        """Watch a module's routers; see ``of``."""
        self._scores = ROUTERS[module.config.model_type]
        named = _routers(module)
        self._places, self._routers = list(named), list(named.values())
        self._shape = (module.config.num_hidden_layers, module.config.num_experts_per_tok)
        self._replays = replays
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
        tokens, first = packed.tokens.shape[1], 0
        if context is not None:
            first, last = context.span(tokens)
            tokens = max(0, min(tokens, last) - first)
        choices = None
        if self._replays:
            assert packed.choices is not None, "rollouts without choices are refused"
            choices = packed.choices[first : first + tokens].reshape(tokens, *self._shape)
        self._pass = Pass(tokens=tokens, filler=packed.filler, choices=choices)
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
        del given
        now = self._pass
        if now is None:
            return None
        logits, gates, chosen = outputs
        if now.choices is not None:
            engines = now.choices[:, self._places[layer]].to(torch.int64)
            gates, chosen = self._replayed(router, logits, gates, chosen, engines)
        own = logits[: now.tokens]
        if self._running and self._counted is not None and not now.filler:
            with torch.no_grad():
                parts = routing.measured(own.detach(), chosen[: now.tokens], self._scores)
            self._counted[-1][1].append(parts)
        pulls = self._pull is not None and not now.filler and torch.is_grad_enabled()
        if self._pull is not None and pulls and logits.requires_grad:
            gates = routing.attached(gates, self._pull.of(layer, own, self._scores))
        return logits, gates, chosen

    def _replayed(
        self, router: Any, logits: Tensor, gates: Tensor, chosen: Tensor, engines: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gates and choices with the engine's ``[t, K]`` where they are known."""
        rows = len(engines)
        known = (engines >= 0).all(-1, keepdim=True)
        picked = torch.where(known, engines, chosen[:rows])
        replayed = routing.gates(
            logits[:rows],
            picked,
            self._scores,
            # The router of gpt-oss takes the softmax over the chosen experts alone.
            normalized=bool(getattr(router, "norm_topk_prob", True)),
            scaling=getattr(router, "routed_scaling_factor", 1.0),
        ).to(gates.dtype)
        return torch.cat([replayed, gates[rows:]]), torch.cat([picked, chosen[rows:]])

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


def of(module: Any, *, replays: bool = False) -> Routers | None:
    """The routers of a model; None where it has none, or is of a family that is not known.

    Args:
        module: a causal language model.
        replays: its tokens pass the experts that the engine chose.
    """
    if module.config.model_type not in ROUTERS or not _routers(module):
        return None
    return Routers(module, replays=replays)


def replayed(module: Any) -> Replayed:
    """What the engine's choices must be, so that a model of experts can be trained with them."""
    config, (router, *_) = module.config, _routers(module).values()
    return Replayed(
        items=config.num_hidden_layers * config.num_experts_per_tok,
        experts=int(router.weight.shape[0]),
    )


def _routers(module: Any) -> dict[int, Any]:
    """By the number of their layer among all layers, in order."""
    return {
        int(re.findall(r"\.(\d+)\.", name)[0]): each
        for name, each in module.named_modules()
        if type(each).__name__.endswith(CLASSES)
    }
