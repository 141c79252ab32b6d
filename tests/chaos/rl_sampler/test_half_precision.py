"""SGLang serves policies in float16 as well as transformers computes in float16."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import pods_in
from tests.contract.rl_sampler.rescoring import model
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.waiting import until

SECTIONS = {
    "training": {"precision": "FP16"},
    "agent": {"sampling": {"maxTokensPerTurn": 64, "maxContextTokens": 128}},
}
SEED = 3


@torch.no_grad()
def scored(policy: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    """Log-probability of each token but the first, after all before it."""
    logits = policy(torch.tensor([tokens])).logits[0, :-1].double()
    chosen: torch.Tensor = logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])
    return chosen[:, 0]


def test_policies_in_float16_are_loaded_and_sampled_as_transformers_computes(
    tmp_path: Path,
    tiny_model: Path,
    trainer: ScriptedTrainer,
    stores: Stores,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> None:
    halved = {name: tensor.astype(np.float16) for name, tensor in tensors(SEED).items()}
    with (
        EngineServer.running(model=tiny_model, folder=tmp_path, dtype="float16") as engine,
        pods_in(tmp_path, engine_url=engine.url, launch=fork_server.launch) as new,
    ):
        pod = new("pod-a", settings=store_settings, stores=stores, sections=SECTIONS)
        assert pod.stage().returncode == 0
        trainer.publish(weights=halved)
        pod.serve()
        pod.wait_version(1)
        tasks = trainer.insert(4, group_size=4)
        until(lambda: trainer.all_done(tasks), what="the groups")
        rollouts = trainer.chosen(tasks)
    in_half = copy.deepcopy(model(tiny_model, SEED)).half()
    exact = copy.deepcopy(in_half).double()
    ours, theirs = [], []
    for rollout in rollouts:
        (span,) = rollout.spans
        tokens = unpack_int32(rollout.tokens)
        part = slice(span.start - 1, span.end - 1)
        wanted = scored(exact, tokens)[part]
        engine_logprobs = torch.tensor(unpack_float32(rollout.logprobs)[span.start : span.end])
        ours.append((engine_logprobs - wanted).abs())
        theirs.append((scored(in_half, tokens)[part] - wanted).abs())
    gap, rounding = (float(torch.cat(each).mean()) for each in (ours, theirs))
    assert 0 < gap < 2 * rounding < 5e-3, "of other weights it is 0.1 and more"
