"""The CPU image's attention of whole batches: in the real engine, and beside SGLang's own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from rl_contracts.documents.run import PolicyPointer
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.protocol import GenerateRequest, Generation
from rl_sampler.engine.weights import Staged
from rl_sampler.policy.commit import commit
from tests.contract.rl_sampler.engine_server import ENGINE_PYTHON, EngineServer
from tests.contract.rl_sampler.rescoring import CLOSE, model
from tests.contract.rl_sampler.tiny_model import tensors
from tests.waiting import HUNG_SECONDS

SEED = 910
Values = NDArray[np.float64]
PROGRAM = Path(__file__).with_name("both_attentions.py")


@pytest.fixture
async def engine(engine_server: EngineServer, tmp_path: Path) -> AsyncIterator[Engine]:
    """The engine with weights that no test before has made one-sided."""
    (tmp_path / "model.safetensors").write_bytes(save(tensors(SEED), metadata={"format": "pt"}))
    pointer = PolicyPointer(version=SEED, epoch=1, step=0, prefix="p/", manifest_sha256="0")
    async with open_session() as session:
        client = Engine(engine_server.url, session=session)
        staged = Staged(pointer=pointer, folder=tmp_path)
        await commit(client, staged, old=None, seconds=HUNG_SECONDS)
        yield client


def requests() -> list[GenerateRequest]:
    """Groups of ragged prompts; every second one goes on from the one before it."""
    chance = random.Random(0)
    prompts = [[chance.randrange(256) for _ in range(size)] for size in (1, 3, 8, 22, 60, 150, 500)]
    prompts += [[*prompt, *(chance.randrange(256) for _ in range(9))] for prompt in prompts]
    return [
        GenerateRequest(
            prompt=prompt,
            members=4,
            temperature=1.0,
            max_new_tokens=12,
            stop_tokens=(257,),
            greedy=place % 2 == 0,
        )
        for place, prompt in enumerate(prompts)
    ]


def logprobs_of(generation: Generation) -> Values:
    return np.array([logprob for logprob, _, _ in generation.meta_info.output_token_logprobs])


@pytest.mark.soak
async def test_engine_logprobs_equal_those_of_transformers(
    engine: Engine, engine_server: EngineServer, tiny_model: Path
) -> None:
    asked = requests()
    # Once alone, so that what follows finds prefixes in the cache, then everything at once.
    groups = [await engine.generate(replace(asked[3], members=1))]
    groups += await asyncio.gather(*(engine.generate(request) for request in asked))
    judge = Judge(tiny_model)
    for request, members in zip([asked[3], *asked], groups, strict=True):
        for member in members:
            wanted, best = judge(tuple(request.prompt), tuple(member.output_ids))
            assert float(np.abs(logprobs_of(member) - wanted).max()) < CLOSE
            if request.greedy:  # no token is clearly more probable than the one that was taken
                assert bool((wanted >= best - CLOSE).all())
    log = (engine_server.folder / "engine.log").read_text()
    assert "attends to whole batches" in log


class Judge:
    """Transformers' log-probabilities; members with the same tokens are computed once."""

    def __init__(self, folder: Path) -> None:
        self._model = model(folder, SEED)
        self._judged: dict[tuple[int, ...], tuple[Values, Values]] = {}

    def __call__(self, prompt: tuple[int, ...], output: tuple[int, ...]) -> tuple[Values, Values]:
        """Of each generated token, and of the most probable one in its place."""
        tokens = (*prompt, *output)
        if tokens not in self._judged:
            with torch.no_grad():
                logits = self._model(torch.tensor([tokens])).logits[0, len(prompt) - 1 : -1]
            scores = torch.log_softmax(logits, dim=-1)
            taken = scores.gather(1, torch.tensor(output)[:, None])[:, 0]
            self._judged[tokens] = taken.numpy(), scores.max(-1).values.numpy()
        return self._judged[tokens]


@pytest.mark.soak
def test_batched_backend_equals_sglang_and_leaves_special_layers_to_it() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [ENGINE_PYTHON, PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    whole = {name for name, result in results.items() if result["whole"]}
    assert (whole, len(results)) == ({"extend", "decode"}, 7)
    assert {name: result["gap"] for name, result in results.items() if result["gap"] > 1e-6} == {}
