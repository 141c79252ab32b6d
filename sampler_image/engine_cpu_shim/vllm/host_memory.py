"""Gives SGLang's LoRA code ordinary memory where it asks for page-locked memory.

PyTorch refuses ``pin_memory`` without an accelerator's driver. Page-locking only changes the speed
of copies to an accelerator, so it has no effect here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

FACTORIES = ("arange", "empty", "full", "ones", "tensor", "zeros")


def without_pinning() -> None:
    """Make PyTorch ignore ``pin_memory`` from now on; does nothing where an accelerator exists."""
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
