"""Models and checks for episodes of several turns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout, StopReason
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import ADDED, END, Tensors, tensors

SERVER = Path(__file__).parents[1] / "tools" / "mcp_server.py"
END_ID = 256 + ADDED.index(END)
TEMPLATE = (
    "{%- for message in messages -%}{{- '<|user|>' ~ message.content ~ '<|end|>' -}}"
    "{%- endfor -%}{{- '<|assistant|>' -}}"
)


def short_spoken() -> Tensors:
    """Weights that end a turn about half of the time, whatever was said."""
    weights = {name: np.zeros_like(tensor) for name, tensor in tensors(0).items()}
    for name, tensor in weights.items():
        if "norm" in name:
            tensor[:] = 1
    weights["model.embed_tokens.weight"][:] = 0.05
    weights["model.embed_tokens.weight"][END_ID] = 0.05 * 2.7
    return weights


def with_tools(trainer: ScriptedTrainer, model: Path, **options: Any) -> dict[str, Any]:
    """Sections of a job whose model has a chat template for tools, and an agent that uses them."""
    objects = trainer.stores.objects
    key = f"{objects.prefix}models/tools"
    for path in model.iterdir():
        objects.put_file(f"{key}/{path.name}", path)
    settings = json.loads((model / "tokenizer_config.json").read_bytes())
    settings["chat_template"] = TEMPLATE
    objects.put(f"{key}/tokenizer_config.json", json.dumps(settings).encode())
    server = {"name": "calculator", "command": [sys.executable, str(SERVER)], "timeoutSeconds": 300}
    sampling = {"maxTokensPerTurn": 64, "maxContextTokens": 800}
    agent = {"kind": "ToolLoop", "mcpServers": [server], "sampling": sampling, **options}
    return {"model": {"uri": objects.uri(key)}, "agent": agent}


def check_turns(rollout: Rollout) -> None:
    """One sequence; each turn shows what is new and keeps what was said, token by token."""
    tokens, logprobs = unpack_int32(rollout.tokens), unpack_float32(rollout.logprobs)
    assert rollout.sequence_starts == []
    end = 0
    for turn in rollout.turns:
        assert (turn.request.start, turn.request.end) == (end, turn.response.start)
        assert rollout.mask[turn.request.start : turn.request.end].count(1) == 0
        assert rollout.mask[turn.response.start : turn.response.end].count(0) == 0
        end = turn.response.end
        assert (tokens[end - 1] == END_ID) == (turn.stop_reason is StopReason.STOP)
        assert turn.generate_seconds > 0
    assert end == len(tokens)
    assert all(value == 0 for value, bit in zip(logprobs, rollout.mask, strict=True) if not bit)
    covered = [at for span in rollout.spans for at in range(span.start, span.end)]
    assert covered == [at for at, bit in enumerate(rollout.mask) if bit]
