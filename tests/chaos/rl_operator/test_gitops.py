"""Every example under both kinds of apply; the contract lane tries a third under each."""

from __future__ import annotations

from pathlib import Path

from tests.contract.rl_operator.api.test_gitops import (
    Repository,
    check_client_side,
    check_server_side,
)
from tests.contract.rl_operator.world import World


def test_a_client_side_apply_of_any_example_shows_no_drift(world: World, tmp_path: Path) -> None:
    world.make_secret()
    check_client_side(Repository(world, tmp_path))


def test_a_server_side_apply_of_any_example_shows_no_drift(world: World, tmp_path: Path) -> None:
    world.make_secret()
    check_server_side(Repository(world, tmp_path))
