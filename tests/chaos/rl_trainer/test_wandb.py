"""W&B online: one run for all attempts; while its server is away each try ends the same way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.chaos.rl_trainer.wandb_server import serving_wandb
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


def wandb_variables(home: Path, url: str) -> dict[str, str]:
    places = os.pathsep.join(str(ROOT / name) for name in ("contracts", "trainer_image"))
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([places, os.environ.get("PYTHONPATH", "")]),
        "WANDB_BASE_URL": url,
        "WANDB_ERROR_REPORTING": "false",
        "HOME": str(home),
    }


def test_an_unreachable_wandb_server_can_be_retried(tmp_path: Path) -> None:
    variables = wandb_variables(tmp_path, f"http://127.0.0.1:{deaf_port()}")
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


ATTEMPTS = """
import sys
from pathlib import Path
from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.tracker import About
from rl_trainer.tracking.weights_and_biases import WeightsAndBiases

epoch, first, last = map(int, sys.argv[2:5])
about = About(
    project="ns", job="sums", run="r", epoch=epoch, settings={"learningRate": 0.1},
    entity="team", wanted_name="first try", tags=("gsm8k", "lora"),
)
tracker = WeightsAndBiases(Path(sys.argv[1]), about, mode="Online", key="0" * 40)
tracker.write([
    Entry(step=step, time=1e9, scalars={"reward/mean": step / 10})
    for step in range(first, last + 1)
])
tracker.close()
"""


def test_attempts_are_one_wandb_run_in_which_each_step_is_shown(tmp_path: Path) -> None:
    with serving_wandb() as server:
        variables = wandb_variables(tmp_path, server.url)
        for epoch, last in ((1, 2), (2, 4)):  # the second attempt hands all steps over again
            places = [str(tmp_path / f"{epoch}"), str(epoch), "1", str(last)]
            subprocess.run(
                [sys.executable, "-c", ATTEMPTS, *places],
                env=variables,
                check=True,
                timeout=HUNG_SECONDS,
            )
    assert list(server.runs) == ["r"]
    run = server.runs["r"]
    assert (run.entity, run.project, run.name) == ("team", "ns", "first try")
    assert run.tags == ["gsm8k", "lora"]
    assert run.starts == 2
    shown = [(line["step"], line["reward/mean"]) for line in run.history]
    assert sorted(set(shown)) == [(step, step / 10) for step in range(1, 5)]
    assert shown.count((2, 0.2)) <= 2, "only the last step of the first attempt may come twice"
    assert len(shown) <= 5
    assert run.summary["step"] == 4
    assert any(key.startswith("Basic ") for key in server.keys)
