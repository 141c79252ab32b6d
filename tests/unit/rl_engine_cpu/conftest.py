"""Makes the package importable alone: beside it lies what poses as vLLM, which others look for."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

from tests.servers import ROOT

NAME = "rl_engine_cpu"

if NAME not in sys.modules:
    folder = ROOT / "sampler_image/engine_cpu_shim" / NAME
    spec = spec_from_file_location(
        NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
