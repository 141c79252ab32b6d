"""The contract tier's engine and pods."""

from __future__ import annotations

from tests.contract.rl_sampler.conftest import (
    engine_server,
    fork_server,
    make_pod,
    tiny_model,
    trainer,
)

__all__ = ["engine_server", "fork_server", "make_pod", "tiny_model", "trainer"]
