"""Makes the example's model and data with its scripts, and uploads them."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rl_console.demo.background import Background, background
from rl_console.demo.settings import JOB, DemoSettings
from rl_console.demo.stages import Stages
from rl_contracts.stores.objects import Objects

MODEL_SECONDS = 1500.0
DATA_SECONDS = 60.0
REMEDY = "Read the log; the scripts in examples/arithmetic can also be run by hand."


@dataclass(frozen=True, slots=True)
class Inputs:
    """Folders whose files go into the bucket."""

    model: Path
    data: Path


def paths(settings: DemoSettings) -> Inputs:
    """The folders that the scripts write to."""
    folder = settings.cache / JOB
    return Inputs(folder / "model", folder / "data")


@contextlib.contextmanager
def start_model(settings: DemoSettings, inputs: Inputs) -> Iterator[Background]:
    """Train the model in the background as long as the context lasts."""
    with background(_script(settings, "make_model.py", inputs.model), _log(inputs.model)) as model:
        yield model


def finish(settings: DemoSettings, inputs: Inputs, model: Background, stages: Stages) -> None:
    """Wait for the model, then make the data."""
    model.wait(stages, what="making the model", seconds=MODEL_SECONDS, remedy=REMEDY)
    with background(_script(settings, "make_data.py", inputs.data), _log(inputs.data)) as data:
        data.wait(stages, what="making the data", seconds=DATA_SECONDS, remedy=REMEDY)


def upload(objects: Objects, inputs: Inputs) -> int:
    """Upload the inputs to where the manifest expects them; return the number of files."""
    files = {
        f"{prefix}/{JOB}/{path.name}": path
        for prefix, folder in (("models", inputs.model), ("datasets", inputs.data))
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    for key, path in files.items():
        objects.put_file(key, path)
    return len(files)


def _script(settings: DemoSettings, name: str, out: Path) -> list[str]:
    shutil.rmtree(out, ignore_errors=True)
    return [sys.executable, str(settings.example / name), "--out", str(out)]


def _log(folder: Path) -> Path:
    return folder.with_suffix(".log")
