"""SGLang's own calls behind a turn, with requests that run meanwhile.

On a processor they move no memory (the memory saver is off), and SGLang asks for a GPU at their
end. Here torch's module for processors stands for it, so that all the rest of the calls is SGLang's
own: which states they accept, and what becomes of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import save

from rl_sampler.engine.client import Engine, PingResult, open_session
from rl_sampler.engine.protocol import GenerateRequest, Generation
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.tiny_model import tensors, write_model
from tests.waiting import HUNG_SECONDS

PROCESSORS_FOR_DEVICES = "import torch; torch.get_device_module = lambda device=None: torch.cpu\n"
REQUESTS, LONG, TURNS = 4, 600, 3


def a_request(token: int) -> GenerateRequest:
    """A long one, unless the model ends it."""
    return GenerateRequest(
        prompt=[258, token],
        members=1,
        temperature=1.0,
        max_new_tokens=LONG,
        stop_tokens=(),
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    """An engine whose processes take processors for devices."""
    for name in ("model", "site"):
        (tmp_path / name).mkdir()
    write_model(tmp_path / "model")
    (tmp_path / "site/sitecustomize.py").write_text(PROCESSORS_FOR_DEVICES)
    server = EngineServer.running(
        model=tmp_path / "model",
        folder=tmp_path,
        before=("env", f"PYTHONPATH={tmp_path / 'site'}"),
    )
    with server as running:
        yield running


async def test_requests_outlive_turns_and_each_token_names_its_weights(
    engine: EngineServer, tmp_path: Path
) -> None:
    async with open_session() as session:
        client = Engine(engine.url, session=session)
        begun = asyncio.Event()

        async def grown(member: int, tokens: list[int]) -> None:
            begun.set()

        running = [
            asyncio.create_task(client.generate(a_request(16 + number), progress=grown))
            for number in range(REQUESTS)
        ]
        await asyncio.wait_for(begun.wait(), timeout=HUNG_SECONDS)
        for turn in range(1, TURNS + 1):
            await client.pause("Retract")
            await client.release_memory(seconds=HUNG_SECONDS)
            assert await client.ping() is PingResult.ANSWERS
            await client.resume_memory(seconds=HUNG_SECONDS)
            folder = tmp_path / str(turn)
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(
                save(tensors(turn), metadata={"format": "pt"})
            )
            await client.pause("Retract")  # as the follower does before it loads
            await client.load(folder, label=str(turn), seconds=HUNG_SECONDS)
            await client.resume()
        answers: list[list[Generation]] = await asyncio.gather(*running)
    lasts = []
    for (generation,) in answers:
        spans = generation.meta_info.weight_versions
        assert spans[0].version == "base"
        lasts.append(spans[-1].version)
        assert sum(span.end - span.start for span in spans) == len(generation.output_ids)
    assert str(TURNS) in lasts, "no request ran through all turns"
