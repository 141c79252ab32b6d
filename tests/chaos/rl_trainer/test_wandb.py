"""W&B online while its server is away: each try ends the same way, and none is the last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers import ROOT, deaf_port
from tests.waiting import HUNG_SECONDS

TRIES = 2
SCRIPT = """
import sys
from pathlib import Path
from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.tracker import About, TrackerError
from rl_trainer.tracking.weights_and_biases import WeightsAndBiases

about = About(project="ns", job="sums", run="r", epoch=2, settings={})
tracker = WeightsAndBiases(Path(sys.argv[1]), about, mode="Online", key="0" * 40, start_seconds=2)
for _ in range(int(sys.argv[2])):
    try:
        tracker.write([Entry(step=1, time=1e9, scalars={"reward/mean": 0.5})])
    except TrackerError as error:
        print("TRIED", str(error).splitlines()[0])
tracker.close()
"""


def test_an_unreachable_wandb_server_can_be_retried(tmp_path: Path) -> None:
    places = os.pathsep.join(str(ROOT / name) for name in ("contracts", "trainer_image"))
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join([places, os.environ.get("PYTHONPATH", "")]),
        "WANDB_BASE_URL": f"http://127.0.0.1:{deaf_port()}",
        "WANDB_ERROR_REPORTING": "false",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "wandb"), str(TRIES)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=HUNG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    tried = [line for line in done.stdout.splitlines() if line.startswith("TRIED")]
    assert len(tried) == TRIES
    assert all("CommError" in line for line in tried), tried
