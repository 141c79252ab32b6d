"""Every command in every situation: what it prints and how it ends, as a table of files.

`RL_GOLDEN=write pytest tests/contract/rl_console/test_golden.py` writes the table again; read the
difference before you commit it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rl_console.conftest import Run
from tests.contract.rl_console.viewing import OF_OPERATOR, Viewed
from tests.contract.rl_console.world import World

FOLDER = Path(__file__).parent / "golden"
SITUATIONS = ("live", "stalled", "finished", "missing", "no cluster", "no rights")
"""The first four are names of jobs; the others ask about the live one."""
OF_CLUSTER = ("live", "no cluster", "no rights")
"""Situations of a command that names no job."""
COMMANDS = {
    "list": ("list",),
    "list-wide": ("list", "-o", "wide"),
    "list-name": ("list", "-o", "name"),
    "status": ("status", "{job}"),
    "status-wide": ("status", "{job}", "-o", "wide"),
    "watch": ("watch", "--timeout", "0"),
    "watch-job": ("watch", "{job}", "--timeout", "0"),
    "follow": ("follow", "{job}", "--timeout", "0"),
    "logs": ("logs", "{job}"),
    "logs-engine": ("logs", "{job}", "engine"),
    "logs-mistaken": ("logs", "{job}", "kernel"),
    "top": ("top",),
    "top-job": ("top", "{job}"),
    "suspend": ("suspend", "{job}", "--wait", "0"),
    "resume": ("resume", "{job}"),
    "stop": ("stop", "{job}"),
    "plan": ("plan", "-f", "good.yaml", "--config", "config.json", "--device-gib", "24"),
    "plan-missing": ("plan", "-f", "good.yaml", "--config", "nowhere.json"),
    "report": ("report", "{job}", *OF_OPERATOR),
    "trajectories": ("trajectories", "{job}", "--limit", "5", *OF_OPERATOR),
    "trajectories-wide": (
        *("trajectories", "{job}", "--steps", "2-4", "--reward-min", "1", "--tool", "calc"),
        *("--errors", "-o", "wide", *OF_OPERATOR),
    ),
    "trajectories-none": ("trajectories", "{job}", "--text", "no such text", *OF_OPERATOR),
    "trajectories-mistaken": ("trajectories", "{job}", "--stopped-by", "magic", *OF_OPERATOR),
    "trajectory": (
        *("trajectories", "{job}", "train.00000012.1.1", "--tokens", "--first-token", "40"),
        *OF_OPERATOR,
    ),
    "trajectory-name": ("trajectories", "{job}", "train.00000012.1.1", "-o", "name", *OF_OPERATOR),
    "trajectory-missing": ("trajectories", "{job}", "train.00000999.1.1", *OF_OPERATOR),
    "batch": ("batch", "{job}", "5", *OF_OPERATOR),
    "batch-name": ("batch", "{job}", "5", "-o", "name", *OF_OPERATOR),
    "batch-late": ("batch", "{job}", "500", *OF_OPERATOR),
    "policies": ("policies", "{job}", "--limit", "3", *OF_OPERATOR),
    "policies-wide": ("policies", "{job}", "--limit", "2", "-o", "wide", *OF_OPERATOR),
    "policies-one": ("policies", "{job}", "11", *OF_OPERATOR),
    "policies-two": ("policies", "{job}", "6", "12", *OF_OPERATOR),
    "policies-missing": ("policies", "{job}", "400", *OF_OPERATOR),
    "chat": ("chat", "{job}", "-m", "1+1="),
    "chat-pod": ("chat", "{job}", "-m", "1+1=", "--pod", "live-1-worker-0"),
    "replay": ("replay", "{job}", "train.00000012.1.1", *OF_OPERATOR),
    "replay-missing": ("replay", "{job}", "train.00000999.1.1", *OF_OPERATOR),
    "download": ("download", "{job}", "--timeout", "1", "--to", "model"),
    "download-merged": ("download", "{job}", "3", "--merged", "--timeout", "1", "--to", "model"),
    "promote": ("promote", "{job}", "sums-v1", "--timeout", "1"),
    "promote-mistaken": ("promote", "{job}", "Sums_v1"),
    "serve": ("serve", "{job}", "--timeout", "1"),
    "serve-version": ("serve", "{job}", "3", "--name", "three", "--timeout", "1"),
    "serve-dry-run": ("serve", "{job}", "--dry-run", "--name", "dry", "--api-key-secret", "keys"),
    "serve-stop": ("serve", "{job}", "--stop", "--name", "nothing"),
    "retry": ("retry", "{job}", "--yes"),
    "scale": ("scale", "{job}", "2"),
    "scale-group": ("scale", "{job}", "3", "--group", "judge"),
    "diff": ("diff", "live", "{job}"),
    "diff-curves": (
        *("diff", "live", "{job}", "--curve", "reward_mean", "--curve", "kl"),
        *OF_OPERATOR,
    ),
    "diff-no-curve": ("diff", "live", "{job}", "--curve", "beauty", *OF_OPERATOR),
    "diff-file": ("diff", "{job}", "good.yaml"),
    "validate": ("validate", "-f", "good.yaml"),
    "validate-bad": ("validate", "-f", "bad.yaml"),
    "validate-missing": ("validate", "-f", "nowhere.yaml"),
    "validate-server": ("validate", "-f", "good.yaml", "--server"),
    "submit": ("submit", "-f", "good.yaml", "--dry-run"),
    "submit-bad": ("submit", "-f", "bad.yaml"),
    "init": (
        *("init", "sums", "--model", "s3://rl-data/models/a", "--train", "s3://rl-data/a.jsonl"),
        *("--validation", "s3://rl-data/b.jsonl", "--scorer", "ExactMatch", "--lora-rank", "8"),
    ),
    "convert": ("convert", "verl", "train.sh"),
    "convert-unknown": ("convert", "cobol", "train.sh"),
    "convert-empty": ("convert", "trl", "train.sh"),
    "init-missing": ("init", "sums"),
    "drain-node": ("drain", "{job}", "--node", "elsewhere"),
    "drain-trainer": ("drain", "{job}", "--pod", "live-1-worker-0"),
}
PASSING = re.compile(
    r'("?(?:uid|resourceVersion|creationTimestamp)"?: ).*?(?=,?$)|(https://127\.0\.0\.1):\d{5}'
    r"|()\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|((?:download|promote)-)[a-z0-9]{5}\b"
    r"|(--kubeconfig )[^\s`]+"
    r"|(^\[ *)\d+\.\d(?= s\])",
    re.MULTILINE,
)
"""What is different in each run of the tests."""


def settled(text: str) -> str:
    return PASSING.sub(lambda match: f"{next(filter(None, match.groups()), '')}…", text)


def sections(run: Run, world: World, command: tuple[str, ...]) -> Iterator[str]:
    named = "{job}" in command
    for situation in SITUATIONS if named else OF_CLUSTER:
        job = situation if " " not in situation else "live"
        arguments = [job if each == "{job}" else each for each in command]
        done = run(*arguments, kubeconfig=world.kubeconfig_of(situation))
        shown = " ".join(arguments)
        yield f"== {situation}\n$ kubectl rl {shown}\n{settled(done.out)}{settled(done.err)}"
        yield f"exit {done.code}\n\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_the_table_has(
    name: str,
    run: Run,
    world: World,
    viewed: Viewed,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(shutil.copytree(FOLDER.parent / "files", tmp_path / "files"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    text = "".join(sections(run, world, COMMANDS[name]))
    file = FOLDER / f"{name}.txt"
    if os.environ.get("RL_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
    assert "Traceback" not in text


def test_the_table_has_no_file_without_a_command() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(COMMANDS)
