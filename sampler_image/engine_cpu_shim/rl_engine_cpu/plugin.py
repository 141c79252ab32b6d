"""The plugin that SGLang loads in each process, by the entry point in ``sglang.srt.plugins``."""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.mem_cache.pool_host import common as host_pools
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from rl_engine_cpu import forks

NAME = "torch_native"


def register() -> None:
    """Make ``--attention-backend torch_native`` build this plugin's backend; see also ``forks``.

    The name is reused: SGLang checks for it where it allocates slots and turns off graphs, and the
    results are the same. ``SGLANG_PLUGINS`` with another name disables the plugin.
    """
    register_attention_backend(NAME)(create)
    # Where routers' choices are kept (--enable-return-routed-experts): SGLang would page-lock this
    # memory by CUDA, whatever the device is.
    host_pools.ALLOC_MEMORY_FUNCS["cpu"] = host_pools.alloc_with_pin_memory
    HookRegistry.register(forks.PLACE, forks.fork, HookType.AFTER)


def create(runner: Any) -> Any:
    """The backend of a model runner; SGLang's own where the model is not on a CPU."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    from rl_engine_cpu.backend import BatchedAttention  # imported only where it is used, as above

    return (BatchedAttention if runner.device == "cpu" else TorchNativeAttnBackend)(runner)
