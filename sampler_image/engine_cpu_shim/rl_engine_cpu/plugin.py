"""What SGLang loads by the entry point in ``sglang.srt.plugins``, in each of its processes."""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.attention.attention_registry import register_attention_backend

NAME = "torch_native"


def register() -> None:
    """Have ``--attention-backend torch_native`` build ours.

    The name stays: SGLang asks for it by name where it allocates slots and where it turns graphs
    off, and what it computes is the same. ``SGLANG_PLUGINS`` with another name leaves it out.
    """
    register_attention_backend(NAME)(create)


def create(runner: Any) -> Any:
    """The backend of one model runner; SGLang's own where the model is not on a CPU."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    from rl_engine_cpu.backend import BatchedAttention  # as SGLang's own: where it is chosen alone

    return (BatchedAttention if runner.device == "cpu" else TorchNativeAttnBackend)(runner)
