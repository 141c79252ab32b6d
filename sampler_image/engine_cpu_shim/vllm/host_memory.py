"""Ordinary memory where SGLang's LoRA code asks for page-locked memory, which only a driver has.

Without one PyTorch refuses ``pin_memory``. Page-locking changes nothing but the speed of copies to
an accelerator, and here there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")


def without_pinning() -> None:
    """Have PyTorch ignore ``pin_memory`` from now on; does nothing beside an accelerator."""
    if torch.accelerator.is_available():
        return
    for name in FACTORIES:
        setattr(torch, name, _unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = _itself


def _unpinned(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def made(*arguments: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        return factory(*arguments, **options)

    return made


def _itself(tensor: torch.Tensor, *_arguments: object) -> torch.Tensor:
    return tensor
