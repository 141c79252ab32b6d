from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from rl_contracts.documents.run import PolicyPointer
from rl_sampler.agents.policy import relabelled
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineProtocolError, EngineRefusedError
from rl_sampler.engine.protocol import GenerateRequest, Generation
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.weights import Staged
from rl_sampler.policy.adapters import Adapters


class Held:
    """What an engine holds, and what it was asked."""

    def __init__(self, *, refuses: str = "", forgets: str = "", **held: str) -> None:
        self.held, self.calls = dict(held), list[str]()
        self._refuses, self._forgets = refuses, forgets

    async def adapters(self) -> dict[str, str]:
        return dict(self.held)

    async def load_adapter(self, folder: Path, *, label: str, seconds: float) -> None:
        self.calls.append(f"load {label}")
        if label == self._refuses or label in self.held:
            raise EngineRefusedError(doing="loading", status=400, message="no")
        if label != self._forgets:
            self.held[label] = str(folder)

    async def unload_adapter(self, label: str) -> None:
        self.calls.append(f"unload {label}")
        if self.held.pop(label, None) is None:
            raise EngineRefusedError(doing="unloading", status=400, message="not there")


def adapters_of(held: Held) -> Adapters:
    return Adapters(cast("Engine", held))


def staged(version: int, folder: str = "") -> Staged:
    pointer = PolicyPointer(
        version=version, epoch=1, step=version, prefix=f"p/{version}/", manifest_sha256="0"
    )
    return Staged(pointer=pointer, folder=Path(folder or f"/w/{version}"))


async def test_adapters_are_loaded_beside_others_and_unloaded_when_unused() -> None:
    held = Held()
    adapters = adapters_of(held)
    for version in (1, 2, 3):
        await adapters.load(staged(version), seconds=1)
    await adapters.unload(but={"3", "1"})
    assert held.held == {"1": "/w/1", "3": "/w/3"}
    await adapters.unload(but={"3"})
    await adapters.unload(but={"3"})
    assert held.calls == ["load 1", "load 2", "load 3", "unload 2", "unload 1"]


async def test_adapter_that_the_engine_holds_is_not_loaded_again() -> None:
    held = Held(**{"7": "/w/7", "stray": "/x"})
    adapters = adapters_of(held)
    await adapters.load(staged(7), seconds=1)
    await adapters.unload(but={"7"})
    assert held.calls == ["unload stray"]


async def test_other_adapter_of_the_same_name_is_replaced() -> None:
    held = Held(**{"7": "/old/7"})
    await adapters_of(held).load(staged(7), seconds=1)
    assert held.held == {"7": "/w/7"}
    assert held.calls == ["unload 7", "load 7"]


async def test_refused_adapter_is_unloaded_and_others_stay() -> None:
    held = Held(refuses="2", **{"1": "/w/1"})
    adapters = adapters_of(held)
    with pytest.raises(EngineRefusedError):
        await adapters.load(staged(2), seconds=1)
    assert held.calls == ["load 2", "unload 2"]
    assert held.held == {"1": "/w/1"}


async def test_load_fails_when_the_engine_does_not_report_the_adapter() -> None:
    with pytest.raises(EngineProtocolError, match="adapter 4"):
        await adapters_of(Held(forgets="4")).load(staged(4), seconds=1)


def test_adapter_is_in_use_until_its_last_request_ends() -> None:
    serving = Serving(adapters=True)
    with serving.using("1"):
        with serving.using("1"), serving.using("2"):
            assert set(serving.in_use) == {"1", "2"}
        assert set(serving.in_use) == {"1"}
        seen = serving.changes
    assert not serving.in_use
    assert serving.changes == seen + 1, "the follower is told"


def a_generation(*versions: str) -> Generation:
    spans = [
        {"version": version, "start": start, "end": start + 1}
        for start, version in enumerate(versions)
    ]
    meta = {"finish_reason": {"type": "stop"}, "weight_versions": spans}
    return Generation.model_validate({"output_ids": [5] * len(versions), "meta_info": meta})


def test_tokens_are_labelled_with_the_adapter_that_sampled_them() -> None:
    generation = relabelled(a_generation("base", "base"), "12")
    assert [weight_version.version for weight_version in generation.meta_info.weight_versions] == [
        "12",
        "12",
    ]
    assert [
        (weight_version.start, weight_version.end)
        for weight_version in generation.meta_info.weight_versions
    ] == [(0, 1), (1, 2)]


def test_adapter_over_other_base_weights_raises_a_protocol_error() -> None:
    with pytest.raises(EngineProtocolError, match="'3'"):
        relabelled(a_generation("base", "3"), "12")


@pytest.mark.parametrize(("adapter", "named"), [("", False), ("12", True)])
def test_request_names_its_adapter(adapter: str, named: bool) -> None:
    request = GenerateRequest(
        prompt=[1],
        members=1,
        temperature=1.0,
        max_new_tokens=1,
        stop_tokens=(),
        adapter=adapter,
    )
    assert ("lora_path" in request.to_json()) is named
