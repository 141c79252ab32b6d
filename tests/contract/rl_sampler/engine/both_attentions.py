"""A program for the engine's interpreter: our attention backend beside SGLang's own.

Prints, for each kind of layer and forward, how far the outputs are from each other, and whether
ours was computed for the whole batch.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from rl_engine_cpu.backend import BatchedAttention

HEADS, FEW, SIZE, SLOTS = 4, 2, 16, 4096
DECODER = AttentionType.DECODER
CACHED, NEW = [0, 9, 40, 3], [7, 1, 5, 12]


def runner(cache_type: torch.dtype) -> Any:
    """What the backends take from SGLang's model runner."""
    pool = MHATokenToKVPool(SLOTS, 1, cache_type, FEW, SIZE, 1, "cpu", enable_memory_saver=False)
    random = torch.Generator().manual_seed(0)
    for buffer in (pool.k_buffer[0], pool.v_buffer[0]):
        buffer.copy_(torch.randn(buffer.shape, generator=random).to(cache_type))
    table = (torch.randperm(SLOTS, generator=random) + 1)[: 6 * 64].view(6, 64).to(torch.int32)
    return SimpleNamespace(
        device="cpu", token_to_kv_pool=pool, req_to_token_pool=SimpleNamespace(req_to_token=table)
    )


def layer(**fields: Any) -> RadixAttention:
    """One layer of a model."""
    return RadixAttention(HEADS, SIZE, 0.25, FEW, 0, **fields)


def forward(mode: ForwardMode, table: torch.Tensor, **fields: Any) -> Any:
    """What the backends take from a forward's batch."""
    requests, cached = torch.tensor([4, 0, 5, 2]), torch.tensor(CACHED)
    new = torch.ones_like(cached) if mode.is_decode() else torch.tensor(NEW)
    places = [table[r, a : a + b] for r, a, b in zip(requests, cached, new, strict=True)]
    ours = {
        "forward_mode": mode,
        "req_pool_indices": requests,
        "seq_lens": cached + new,
        "extend_prefix_lens": cached,
        "extend_seq_lens": new,
        "encoder_lens": None,
        "out_cache_loc": torch.cat(places).long(),
        "encoder_out_cache_loc": None,
        "spec_info": None,
    }
    return SimpleNamespace(**(ours | fields))


def compared(
    made: RadixAttention, mode: ForwardMode, cache_type: torch.dtype, **fields: Any
) -> dict[str, Any]:
    """The same forward by both, each with a cache of its own."""
    outputs: list[torch.Tensor] = []
    for kind in (TorchNativeAttnBackend, BatchedAttention):
        backend = kind(runner(cache_type))
        loops = _noted_loops(backend)
        batch = forward(mode, backend.req_to_token_pool.req_to_token, **fields)
        random = torch.Generator().manual_seed(1)
        tokens = len(batch.out_cache_loc)
        q, k, v = (
            torch.randn(tokens, heads * SIZE, generator=random) for heads in (HEADS, FEW, FEW)
        )
        backend.init_forward_metadata(batch)
        views = (projection.view(-1, FEW, SIZE) for projection in (k, v))
        outputs.append(backend.forward(q, *views, made, batch))
    assert outputs[0].shape == outputs[1].shape
    return {
        "gap": float((outputs[0] - outputs[1]).abs().max()),
        "whole": not loops,  # the last backend's, which is ours
    }


def _noted_loops(backend: Any) -> list[str]:
    """Fills with the names of SGLang's loops over sequences as the backend runs them."""
    loops: list[str] = []
    for name in ("_run_sdpa_forward_extend", "_run_sdpa_forward_decode"):
        loop = getattr(backend, name)

        def noted(*arguments: Any, name: str = name, loop: Any = loop, **options: Any) -> Any:
            loops.append(name)
            return loop(*arguments, **options)

        setattr(backend, name, noted)
    return loops


def main() -> None:
    """Print the comparisons as JSON."""
    extend, decode = ForwardMode.EXTEND, ForwardMode.DECODE
    encoder = {"encoder_lens": torch.tensor([2, 3, 4, 1])}
    cases: dict[str, tuple[RadixAttention, ForwardMode, torch.dtype, dict[str, Any]]] = {
        "extend": (layer(), extend, torch.float32, {}),
        "decode": (layer(), decode, torch.float32, {}),
        "window extend": (layer(sliding_window_size=4), extend, torch.float32, {}),
        "window decode": (layer(sliding_window_size=4), decode, torch.float32, {}),
        "encoder": (layer(attn_type=AttentionType.ENCODER_ONLY), extend, torch.float32, {}),
        "beside an encoder": (layer(), decode, torch.float32, encoder),
        "another cache": (layer(), decode, torch.bfloat16, {}),
    }
    with torch.no_grad():
        comparisons = {
            name: compared(made, *rest, **fields) for name, (made, *rest, fields) in cases.items()
        }
    json.dump(comparisons, sys.stdout)


if __name__ == "__main__":
    main()
