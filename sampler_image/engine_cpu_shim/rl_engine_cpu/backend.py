"""The attention backend that SGLang calls: whole batches where possible, else SGLang's own loop."""

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
    """``torch_native`` with a call per layer for sequences of similar length.

    It computes the causal self-attention of decoders. All other layers and forwards (sliding
    window, cross attention, encoders, speculation, caches of other types) go to SGLang's own code,
    which loops over the sequences.
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
        """Plan a forward; SGLang calls this before the first layer."""
        super().init_forward_metadata(forward_batch)
        self._batch, self._calls = forward_batch, self._planned(forward_batch)

    def forward_extend(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Any:
        """Attention of a layer for prompts and their continuations."""
        output = self._attended(q, k, v, layer, forward_batch, save_kv_cache)
        if output is not None:
            return output
        return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)

    def forward_decode(
        self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Any:
        """Attention of a layer for the next token of each sequence."""
        output = self._attended(q, k, v, layer, forward_batch, save_kv_cache)
        if output is not None:
            return output
        return super().forward_decode(q, k, v, layer, forward_batch, save_kv_cache)

    def _planned(self, batch: Any) -> list[Call] | None:
        mode = batch.forward_mode
        special = batch.encoder_lens is not None or batch.spec_info is not None
        supported = mode in (ForwardMode.DECODE, ForwardMode.EXTEND)
        if special or not supported or not self._cache_is_plain:
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
        """The layer's output; None, without any effect, where SGLang's own code must compute it."""
        if forward_batch is not self._batch or self._calls is None or not _is_plain(layer):
            return None
        cache = self.token_to_kv_pool
        if q.dtype != cache.dtype:
            return None
        if save and k is not None and v is not None:
            cache.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        output = attend(
            q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim),
            cache.get_key_buffer(layer.layer_id),
            cache.get_value_buffer(layer.layer_id),
            calls=self._calls,
            scale=layer.scaling,
        )
        return output.view(-1, layer.tp_q_head_num * layer.v_head_dim)


def _is_plain(layer: Any) -> bool:
    """Whether a layer is causal self-attention over all earlier tokens."""
    return (
        layer.attn_type == AttentionType.DECODER
        and not layer.is_cross_attention
        and layer.sliding_window_size == -1
        and layer.qk_head_dim == layer.v_head_dim
    )
