"""SGLang's own parser: the recorded names of its options, and the operator's arguments."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from rl_contracts import engine_server
from rl_contracts.spec.engine import Engine
from tests.contract.rl_sampler.engine_server import ENGINE_PYTHON
from tests.servers import ROOT
from tests.unit.rl_operator.validation.test_engine_options import ALL
from tests.waiting import HUNG_SECONDS

RECORDED = ROOT / "tests/unit/rl_operator/validation/sglang_options.txt"
DUMP = """\
import argparse, json
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(json.dumps(sorted(name for each in parser._actions for name in each.option_strings)))
"""


READ = """\
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
read = vars(parser.parse_args(["--model-path", "m", *sys.argv[1:]]))
print(json.dumps({name: read[name] for name in read if read[name] != parser.get_default(name)}))
"""
MEANT = {
    "model_path": "m",
    "tp_size": 4,
    "dp_size": 2,
    "ep_size": 2,
    "mem_fraction_static": 0.85,
    "context_length": 16384,
    "quantization": "fp8",
    "load_format": "flash_rl",
    "kv_cache_dtype": "fp8_e4m3",
    "speculative_algorithm": "NGRAM",
    "speculative_num_draft_tokens": 8,
    "speculative_ngram_max_bfs_breadth": 1,
    "speculative_ngram_max_trie_depth": 6,
}


def last_output(program: str, *arguments: str) -> Any:
    """What a program of SGLang's Python prints last."""
    done = subprocess.run(
        [ENGINE_PYTHON, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_recorded_options_are_those_of_sglang() -> None:
    assert last_output(DUMP) == RECORDED.read_text().split()


def test_typed_options_are_read_by_sglang_as_they_are_meant() -> None:
    arguments = engine_server.arguments(Engine.model_validate(ALL))
    assert last_output(READ, *arguments) == MEANT
