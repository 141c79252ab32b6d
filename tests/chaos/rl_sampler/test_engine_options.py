"""The recorded names of SGLang's options are those of its parser."""

from __future__ import annotations

import json
import subprocess

from tests.contract.rl_sampler.engine_server import ENGINE_PYTHON
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS

RECORDED = ROOT / "tests/unit/rl_operator/validation/sglang_options.txt"
DUMP = """\
import argparse, json
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
print(json.dumps(sorted(name for each in parser._actions for name in each.option_strings)))
"""


def test_recorded_options_are_those_of_sglang() -> None:
    done = subprocess.run(
        [ENGINE_PYTHON, "-c", DUMP],
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == RECORDED.read_text().split()
