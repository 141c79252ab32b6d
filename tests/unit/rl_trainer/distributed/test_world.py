from __future__ import annotations

from typing import Any, cast

import pytest

from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.mesh import Mesh
from rl_trainer.distributed.world import ALONE, World


def world(rank: int, sizes: MeshSizes) -> World:
    mesh = Mesh(sizes=sizes, layers=cast("Any", None))
    return World(rank=rank, size=sizes.processes, mesh=mesh)


@pytest.mark.parametrize(
    ("sizes", "data_ranks"),
    [
        (MeshSizes(fsdp=4), [0, 1, 2, 3]),
        (MeshSizes(tp=2), [0, 0]),
        (MeshSizes(fsdp=2, tp=2), [0, 0, 1, 1]),
        (MeshSizes(replicate=2, fsdp=2), [0, 1, 2, 3]),
        (MeshSizes(replicate=2, fsdp=2, tp=2, ep=4), [0, 0, 1, 1, 2, 2, 3, 3]),
        (MeshSizes(fsdp=2, cp=2, tp=2), [0, 0, 0, 0, 1, 1, 1, 1]),
    ],
)
def test_neighbours_of_tp_and_cp_train_the_same_share_of_a_batch(
    sizes: MeshSizes, data_ranks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [world(rank, sizes) for rank in range(sizes.processes)]
    assert [each.data_rank for each in worlds] == data_ranks
    assert {each.data_ranks for each in worlds} == {max(data_ranks) + 1}
    monkeypatch.setattr(World, "gather", lambda *_: [each.data_rank for each in worlds])
    assert worlds[0].gather_shares(0) == list(range(max(data_ranks) + 1))


def test_ranks_with_the_same_tokens_draw_the_same_random_numbers() -> None:
    worlds = [world(rank, MeshSizes(fsdp=2, cp=2, tp=2)) for rank in range(8)]
    assert [each.token_rank for each in worlds] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_process_alone_trains_all_of_a_batch() -> None:
    assert (ALONE.data_rank, ALONE.data_ranks, ALONE.gather_shares(7)) == (0, 1, [7])
