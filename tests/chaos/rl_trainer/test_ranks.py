"""Every case of the ranks' contract on four ranks; the contract lane runs a part of them."""

from __future__ import annotations

from pathlib import Path

from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed.test_ranks import CASES, check_ranks, train
from tests.tiny_model import save_tiny


def test_four_ranks_change_neither_loss_nor_gradient_in_any_case(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "tiny", num_hidden_layers=3, intermediate_size=49)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    check_ranks(4, tuple(CASES), train(ALONE, folder), folder=folder, scratch=scratch)
