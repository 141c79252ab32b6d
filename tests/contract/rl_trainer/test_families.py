from __future__ import annotations

from pathlib import Path

from tests.models.families import trained


def test_a_mixture_of_experts_is_trained_exported_and_loaded_again(tmp_path: Path) -> None:
    result = trained("qwen3_moe", tmp_path)
    assert result.gap <= 1e-4
    assert result.changed
    assert result.reload_gap <= 1e-6
