"""Host memory of a trainer's pods by formula."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rl_contracts.capacity.fit import fit
from rl_contracts.capacity.host import COPIES, READERS, host_memory
from rl_contracts.capacity.training import GIB, trained_parameters
from rl_contracts.spec.parallelism import MeshSizes
from tests.unit.docs.capacity_page import WORKED, Worked, setup

MODELS = pytest.mark.parametrize("worked", WORKED, ids=lambda worked: worked.name)


@MODELS
def test_loading_needs_no_whole_copy_of_a_model(worked: Worked) -> None:
    host = host_memory(worked.shape, setup(worked, worked.spec), processes=8)
    whole = 4 * worked.shape.parameters
    assert 0 < host.loading < whole
    assert host.loading <= READERS * 4 * worked.shape.table_parameters * 8


@MODELS
def test_more_processes_read_smaller_parts(worked: Worked) -> None:
    spec = worked.changed(replicas=8, gpus=8, parallelism={}, training={})
    single_gpu = worked.changed(replicas=1, gpus=1, parallelism={}, training={})
    many, alone = (
        host_memory(worked.shape, setup(worked, each), processes=1) for each in (spec, single_gpu)
    )
    assert many.loading == pytest.approx(alone.loading / 64)
    assert many.published == pytest.approx(alone.published / 64)
    assert alone.published == COPIES * 2 * worked.shape.parameters
    assert many.checkpoint == pytest.approx(alone.checkpoint / 64)
    assert alone.checkpoint == 12 * worked.shape.parameters
    assert many.export == pytest.approx(alone.export / 64)
    assert alone.export == 2 * worked.shape.parameters


def test_a_limit_below_the_host_memory_may_not_fit() -> None:
    (worked,) = [each for each in WORKED if each.name == "qwen3-8b"]
    host = host_memory(worked.shape, setup(worked, worked.spec), processes=4)
    verdicts = {}
    for room in (0.99, 1.01, None):
        limit = None if room is None else room * host.total
        compared = fit(worked.spec, worked.shape, size_gib=79, cuda=True, host_bytes=limit)
        assert compared is not None
        assert f"checkpoint {host.checkpoint / GIB:.2f}" in compared.message
        verdicts[room] = compared.verdict
        assert ("limits.memory" in compared.remedy) == (room == 0.99)
    assert verdicts == {0.99: "MayNotFit", 1.01: "Fits", None: "Fits"}


def test_turns_of_an_engine_need_the_host_for_weights_and_moments() -> None:
    (worked,) = [each for each in WORKED if each.name == "qwen3-8b"]
    alone = setup(worked, worked.spec)
    turns = replace(alone, turns=True)
    before, after = (host_memory(worked.shape, each, processes=4) for each in (alone, turns))
    assert (before.offloaded, after.offloaded) == (0, 12 * worked.shape.parameters)
    assert after.total == before.total + after.offloaded


def test_a_critic_of_another_model_has_its_own_size_in_a_checkpoint() -> None:
    small, large = (
        next(each for each in WORKED if each.name == name) for name in ("qwen3-8b", "qwen3-32b")
    )
    valued = replace(setup(small, small.spec), critic=True, critic_shape=large.shape)
    host = host_memory(small.shape, valued, processes=4)
    body = large.shape.parameters - large.shape.table_parameters
    assert host.checkpoint == 12 * (small.shape.parameters + body)
    assert (
        host.loading
        > host_memory(small.shape, replace(valued, critic_shape=None), processes=4).loading
    )


def test_processors_say_nothing_of_a_host() -> None:
    (worked,) = [each for each in WORKED if each.name == "qwen3-8b"]
    spec = worked.spec
    spec = spec.model_copy(update={"trainer": spec.trainer.model_copy(update={"replicas": 1})})
    compared = fit(spec, worked.shape, size_gib=4096, cuda=False, host_bytes=1.0)
    assert compared is not None
    assert compared.verdict == "Fits"
    assert "host" not in compared.message


def test_adapters_are_all_that_their_checkpoint_holds() -> None:
    (worked,) = [each for each in WORKED if each.name == "llama-3.3-70b"]
    spec = worked.changed(
        replicas=1, gpus=8, parallelism={"cp": 2}, training={"lora": {"rank": 16}}
    )
    assert setup(worked, spec).mesh == MeshSizes(fsdp=4, cp=2)
    host = host_memory(worked.shape, setup(worked, spec), processes=8)
    assert host.checkpoint < 0.01 * 12 * worked.shape.parameters
    assert host.export == 2 * worked.shape.parameters


def test_the_first_process_gathers_the_adapters_that_it_exports() -> None:
    (worked,) = [each for each in WORKED if each.name == "llama-3.3-70b"]
    lora = {"lora": {"rank": 512}}
    spec = worked.changed(replicas=8, gpus=8, parallelism={}, training=lora)
    shape, wanted = worked.shape, setup(worked, spec)
    host = host_memory(shape, wanted, processes=1)
    assert host.export == 4 * trained_parameters(shape, wanted) > 2 * shape.parameters / 64


def test_adapters_of_experts_are_published_as_whole_models() -> None:
    (worked,) = [each for each in WORKED if each.name == "qwen3-235b-a22b"]
    spec = worked.changed(
        replicas=2,
        gpus=8,
        parallelism={},
        training={"lora": {"rank": 16, "experts": "Adapted"}},
    )
    adapted = setup(worked, spec)
    host = host_memory(worked.shape, adapted, processes=8)
    share = 2 * worked.shape.parameters * 8 / adapted.mesh.processes
    assert host.published == 3 * share
    assert host.export > share
