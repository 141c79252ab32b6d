"""The client and the commit against the real engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from safetensors.numpy import save

from rl_contracts.documents.run import PolicyPointer
from rl_sampler.engine.client import Engine, Pulse, open_session
from rl_sampler.engine.errors import EngineRefusedError, EngineUnavailableError
from rl_sampler.engine.protocol import GenerateRequest
from rl_sampler.policy.commit import RolledBackError, WeightsUnknownError, commit
from rl_sampler.weights import Staged
from tests.contract.rl_sampler.conftest import EngineServer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.servers import free_port

REQUEST = GenerateRequest(
    prompt=[258, 16, 257, 259], members=3, temperature=1.0, max_new_tokens=6, stop_tokens=(257,)
)


@pytest.fixture
async def engine(engine_server: EngineServer) -> AsyncIterator[Engine]:
    async with open_session() as session:
        yield Engine(engine_server.url, session=session)


def staged(folder: Path, version: int, *, there: bool = True) -> Staged:
    pointer = PolicyPointer(version=version, epoch=1, step=0, prefix="p/", manifest_sha256="0")
    at = folder / str(version)
    if there:
        at.mkdir()
        (at / "model.safetensors").write_bytes(save(tensors(version), metadata={"format": "pt"}))
    return Staged(pointer=pointer, folder=at)


async def test_sampling_names_tokens_logprobs_and_versions(engine: Engine) -> None:
    info = await engine.describe()
    assert (info.version, info.max_running_requests) == ("0.5.23", 64)
    members = await engine.generate(REQUEST)
    assert len(members) == 3
    for one in members:
        assert [token for _, token, _ in one.meta_info.output_token_logprobs] == one.output_ids
        assert one.meta_info.weight_versions[-1].end == len(one.output_ids)


async def test_a_commit_is_served_and_a_refused_one_is_rolled_back(
    engine: Engine, tmp_path: Path
) -> None:
    one = staged(tmp_path, 901)
    paused = await commit(engine, one, old=None, seconds=30)
    assert 0 < paused < 5
    with pytest.raises(RolledBackError):
        await commit(engine, staged(tmp_path, 902, there=False), old=one, seconds=30)
    members = await engine.generate(REQUEST)
    assert {span.version for m in members for span in m.meta_info.weight_versions} == {"901"}
    assert await engine.weight_version() == "901"


async def test_an_engine_whose_weights_nobody_knows_is_left_paused(
    engine: Engine, tmp_path: Path
) -> None:
    lost = staged(tmp_path, 903, there=False)
    with pytest.raises(WeightsUnknownError, match="going back failed"):
        await commit(engine, staged(tmp_path, 904, there=False), old=lost, seconds=30)
    assert await engine.ping() is Pulse.ANSWERS
    await commit(engine, staged(tmp_path, 905), old=None, seconds=30)
    assert len(await engine.generate(REQUEST)) == 3


async def test_what_the_engine_refuses_is_told_with_its_words(engine: Engine) -> None:
    request = GenerateRequest(
        prompt=[1], members=1, temperature=1.0, max_new_tokens=100_000, stop_tokens=()
    )
    with pytest.raises(EngineRefusedError, match="maximum context length") as refused:
        await engine.generate(request)
    assert refused.value.status == 400


async def test_nobody_listening_is_told_apart() -> None:
    async with open_session() as session:
        nobody = Engine(f"http://127.0.0.1:{free_port()}", session=session)
        assert await nobody.ping() is Pulse.ABSENT
        with pytest.raises(EngineUnavailableError, match="sampling"):
            await nobody.generate(REQUEST)
