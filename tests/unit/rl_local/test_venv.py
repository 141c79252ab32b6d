"""What the engine's environment is keyed by."""

from __future__ import annotations

from pathlib import Path

from rl_local.venv import ENGINE_SHIM, demo_requirements, shim


def test_the_shims_key_ignores_bytecode(tmp_path: Path) -> None:
    package = tmp_path / ENGINE_SHIM / "vllm"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("one = 1\n")
    before = shim(tmp_path)
    assert before == ["one = 1\n"]
    (package / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"\xa7\r\r\n")
    assert shim(tmp_path) == before


def test_the_demo_needs_the_console_and_the_examples_scripts_alone() -> None:
    pyproject: dict[str, object] = {
        "project": {
            "dependencies": ["rl-operator[contracts,dashboard]", "rich>=14"],
            "optional-dependencies": {
                "contracts": ["pydantic>=2"],
                "dashboard": ["uvicorn>=0.38"],
                "trainer": ["torch==2.14.1", "transformers==5", "wandb>=0.29", "numpy>=2"],
                "dev": ["rl-operator[trainer]", "ruff"],
            },
        }
    }
    wanted = ["numpy>=2", "pydantic>=2", "rich>=14", "torch==2.14.1", "transformers==5"]
    wanted += ["uvicorn>=0.38"]
    assert demo_requirements(pyproject) == wanted
