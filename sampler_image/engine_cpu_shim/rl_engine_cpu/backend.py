"""The attention backend that SGLang calls: whole batches where we can, its own loop elsewhere."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from rl_engine_cpu.attention import Call, attend, plan

LOG = logging.getLogger(__name__)


class BatchedAttention(TorchNativeAttnBackend):  # type: ignore[misc]  # mypy reads no SGLang
    """``torch_native`` with one call per layer for sequences of like length.

    Causal self-attention of a decoder is computed here. A layer or forward of any other kind
    (sliding window, cross attention, an encoder's layers, speculation, a cache of another type)
    goes to SGLang's own code, sequence by sequence.
    """

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        cache = self.token_to_kv_pool
        self._cache_is_plain = (
            type(cache) is MHATokenToKVPool
            and cache.kv_cache_layout == "nhd"
            and not cache.is_quantized_kv_cache
            and cache.dtype == cache.store_dtype
        )
        self._batch: Any = None
        self._calls: list[Call] | None = None
        if self._cache_is_plain:
            LOG.info("torch_native attends to whole batches (rl_engine_cpu)")

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Plan a forward; SGLang calls it before the first layer."""
        super().init_forward_metadata(forward_batch)
        self._batch, self._calls = forward_batch, self._planned(forward_batch)

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Any:
        """One layer for prompts and their continuations."""
        found = self._attended(q, k, v, layer, forward_batch, save_kv_cache)
        if found is not None:
            return found
        return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)

    def forward_decode(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Any:
        """One layer for one token of each sequence."""
        found = self._attended(q, k, v, layer, forward_batch, save_kv_cache)
        if found is not None:
            return found
        return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache)

    def _planned(self, batch: Any) -> list[Call] | None:
        mode = batch.forward_mode
        others = batch.encoder_lens is not None or batch.spec_info is not None
        known = mode in (ForwardMode.DECODE, ForwardMode.EXTEND)
        if others or not known or not self._cache_is_plain:
            return None
        keys = batch.seq_lens.tolist()
        return plan(
            table=self.req_to_token_pool.req_to_token,
            requests=batch.req_pool_indices,
            queries=[1] * len(keys) if mode.is_decode() else batch.extend_seq_lens.tolist(),
            keys=keys,
            dtype=self.token_to_kv_pool.dtype,
        )

    def _attended(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save: bool
    ) -> torch.Tensor | None:
        """The layer's output, or ``None`` where it is not one of ours and nothing was done."""
        if forward_batch is not self._batch or self._calls is None or not _is_plain(layer):
            return None
        cache = self.token_to_kv_pool
        if q.dtype != cache.dtype:
            return None
        if save and k is not None and v is not None:
            cache.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        found = attend(
            q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim),
            cache.get_key_buffer(layer.layer_id),
            cache.get_value_buffer(layer.layer_id),
            calls=self._calls,
            scale=layer.scaling,
        )
        return found.view(-1, layer.tp_q_head_num * layer.v_head_dim)


def _is_plain(layer: Any) -> bool:
    """Whether it is causal self-attention over everything before."""
    return (
        layer.attn_type == AttentionType.DECODER
        and not layer.is_cross_attention
        and layer.sliding_window_size == -1
        and layer.qk_head_dim == layer.v_head_dim
    )
