"""Every case of the ranks' contract on four ranks, which the contract lane runs on two."""

from __future__ import annotations

from pathlib import Path

from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed import ranks, test_half_precision
from tests.contract.rl_trainer.distributed.test_ranks import CASES, check_ranks, train
from tests.models.tiny_model import save_tiny


def test_four_ranks_change_neither_loss_nor_gradient_in_any_case(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny", num_hidden_layers=3, intermediate_size=49)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    check_ranks(4, tuple(CASES), train(ALONE, folder), folder=folder, scratch=scratch)


def test_updates_that_overflow_are_skipped_by_a_single_rank(tmp_path: Path) -> None:
    tiny, scratch = save_tiny(tmp_path / "tiny", intermediate_size=49), tmp_path / "scratch"
    scratch.mkdir()
    ranks.together(test_half_precision.train, size=1, folder=tiny, scratch=scratch)
