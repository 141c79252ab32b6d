"""The model and the data of the example: made once for each version of its scripts."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rl_console.demo.background import Background, background
from rl_console.demo.settings import JOB, DemoSettings
from rl_console.demo.stages import Stages
from rl_contracts.stores.objects import Objects

MODEL_SECONDS = 900.0
DATA_SECONDS = 60.0
COMPLETE = ".complete"
REMEDY = "Read the log; the scripts in examples/arithmetic can be run by hand as well."


@dataclass(frozen=True, slots=True)
class Inputs:
    """Folders with what goes into the bucket."""

    model: Path
    data: Path

    @property
    def complete(self) -> bool:
        """Both were made whole."""
        return (self.model / COMPLETE).exists() and (self.data / COMPLETE).exists()


def located(settings: DemoSettings) -> Inputs:
    """Where the inputs of these scripts are, or will be."""
    digest = hashlib.sha256()
    for script in sorted(settings.example.glob("*.py")):
        digest.update(script.name.encode() + b"\0" + script.read_bytes() + b"\0")
    folder = settings.cache / f"{JOB}-{digest.hexdigest()[:12]}"
    return Inputs(folder / "model", folder / "data")


@contextlib.contextmanager
def making(settings: DemoSettings, inputs: Inputs) -> Iterator[Background | None]:
    """Make the model beside whatever else goes on; None where it is there already."""
    if (inputs.model / COMPLETE).exists():
        yield None
        return
    with background(_script(settings, "make_model.py", inputs.model), _log(inputs.model)) as made:
        yield made


def finish(
    settings: DemoSettings, inputs: Inputs, model: Background | None, stages: Stages
) -> None:
    """Wait for the model and make the data."""
    if model is not None:
        model.wait(stages, what="making the model", seconds=MODEL_SECONDS, remedy=REMEDY)
        (inputs.model / COMPLETE).touch()
    if not (inputs.data / COMPLETE).exists():
        command = _script(settings, "make_data.py", inputs.data)
        with background(command, _log(inputs.data)) as data:
            data.wait(stages, what="making the data", seconds=DATA_SECONDS, remedy=REMEDY)
        (inputs.data / COMPLETE).touch()


def upload(objects: Objects, inputs: Inputs) -> int:
    """Put the inputs where the manifest expects them; return how many files they are."""
    files = {
        f"{prefix}/{JOB}/{path.name}": path
        for prefix, folder in (("models", inputs.model), ("datasets", inputs.data))
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }
    for key, path in files.items():
        objects.put_file(key, path)
    return len(files)


def _script(settings: DemoSettings, name: str, out: Path) -> list[str]:
    return [sys.executable, str(settings.example / name), "--out", str(out)]


def _log(folder: Path) -> Path:
    return folder.with_suffix(".log")
