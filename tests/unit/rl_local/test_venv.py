"""What the engine's environment is keyed by."""

from __future__ import annotations

from pathlib import Path

from rl_local.venv import ENGINE_SHIM, shim


def test_the_shims_key_ignores_bytecode(tmp_path: Path) -> None:
    package = tmp_path / ENGINE_SHIM / "vllm"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    before = shim(tmp_path)
    assert before == ["one = 1\n"]
    (package / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"\xa7\r\r\n")
    assert shim(tmp_path) == before
