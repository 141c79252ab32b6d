"""The command line without a cluster: help, version, errors and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rl_console import __version__, app
from rl_console.errors import USAGE, NotAllowedError, StageFailedError
from rl_console.invocation import Invocation, require_finite
from tests.network.authority import Authority
from tests.network.loopback import listening
from tests.unit.rl_console.kubeconfig.recording_server import kubeconfig

ROOT = Path(__file__).resolve().parents[3]
SLOW = ("kubernetes", "pydantic", "matplotlib", "minio", "pymongo", "rich.console", "celpy")


def test_the_version_is_the_project_s(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert __version__ == project["version"]
    assert app.run(["--version"]) == 0
    assert capsys.readouterr().out == f"kubectl-rl {__version__}\n"


def test_help_loads_nothing_slow() -> None:
    code = (
        "import sys\nfrom rl_console import app\napp.run(['--help'])\n"
        f"print([name for name in {SLOW!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_eighty_columns_cut_no_line_of_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    app.run(["--help"])
    shown = capsys.readouterr().out
    assert "..." not in shown.replace("[ARGS]...", "")


def test_a_command_line_without_a_command_shows_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert app.run([]) == 0
    assert "Usage: kubectl rl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "error: No such command 'nothing'. See `kubectl rl --help`\n"),
        (
            ["valdate"],
            "error: No such command 'valdate'. Did you mean 'validate'? See `kubectl rl --help`\n",
        ),
        (["follow"], "error: Missing argument 'job'. See `kubectl rl follow --help`\n"),
        (
            ["--kubeconfig", "/nowhere", "list"],
            "error: the kubeconfig /nowhere cannot be used: there is no such file. "
            "Name the file with --kubeconfig or $KUBECONFIG, and the context with "
            "--context; `kubectl config get-contexts` lists them\n",
        ),
        (
            ["diff", "a.yaml", "b.yaml", "--operator-namespace", "rl"],
            "error: --operator-namespace rl: no data of runs are read. Add --curve\n",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_with_the_remedy(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == USAGE
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["follow", ""], "the name of the RLJob is empty"),
        (["stop", "", "--yes"], "the name of the RLJob is empty"),
        (["watch", ""], "the name of the RLJob is empty"),
        (["top", ""], "the name of the RLJob is empty"),
        (["trajectories", ""], "the name of the RLJob is empty"),
        (["retry", "rljob/sums"], "the RLJob cannot have the name 'rljob/sums'"),
        (
            ["status", "sums-"],
            "the RLJob cannot have the name 'sums-'. Names have small letters, digits, - and . "
            "alone, and begin and end with a letter or digit",
        ),
        (["serve", "sums", "--name", ".."], "the endpoint cannot have the name '..'"),
        (["serve", "../sums", "--stop"], "the RLJob cannot have the name '../sums'"),
        (["list", "-n", ".."], "the namespace cannot have the name '..'"),
        (["status", "sums", "-n", "a/b"], "the namespace cannot have the name 'a/b'"),
    ],
)
def test_a_name_that_no_object_can_have_is_refused_before_a_request(
    arguments: Sequence[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one would mean all jobs, e.g. where a variable of the shell is not set."""
    file = kubeconfig(tmp_path, {"server": "http://127.0.0.1:9"}, {"token": "t"})
    assert app.run(["--kubeconfig", str(file), *arguments]) == USAGE
    assert capsys.readouterr().err.startswith(f"error: {says}")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["trajectories", "sums", "--reward-min", "nan"], "--reward-min is nan"),
        (["follow", "sums", "--patience", "inf"], "--patience is inf"),
        (["list", "--request-timeout", "inf"], "--request-timeout is inf"),
        (["--request-timeout", "inf", "list"], "--request-timeout is inf"),
        (["list", "--request-timeout", "1e300"], "--request-timeout is 1e+300"),
        (["watch", "--interval", "1e10"], "--interval is 10000000000.0"),
    ],
)
def test_a_number_that_is_not_finite_or_huge_is_refused(
    arguments: Sequence[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == USAGE
    assert capsys.readouterr().err == f"error: {option}. Give a number up to 5000000000, e.g. 60\n"


def test_a_unix_time_is_taken() -> None:
    """As `make demo` gives ``--started-at``."""
    require_finite({"started_at": time.time()})


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["follow", "sums", "--timeout", "-5"], "--timeout"),
        (["follow", "sums", "--timeout", "nan"], "--timeout"),
        (["follow", "sums", "--patience", "-5"], "--patience"),
        (["watch", "--timeout", "-5"], "--timeout"),
        (["suspend", "sums", "--wait", "-3"], "--wait"),
        (["stop", "sums", "--wait", "-3"], "--wait"),
    ],
)
def test_a_wait_that_is_no_time_is_refused(
    arguments: Sequence[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == USAGE
    assert f"'{option}': Input should be greater than or equal to 0" in capsys.readouterr().err


def failing(error: Exception) -> type[Invocation]:
    class Failing(Invocation):
        def cluster(self) -> None:  # type: ignore[override]
            raise error

    return Failing


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            NotAllowedError(doing="listing", cause="403\n\x1b[31m", remedy="Ask"),
            4,
            "error: refused while listing: 403 \\x1b[31m. Ask\n",
        ),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_an_error_of_a_command_has_its_exit_code(
    error: Exception,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(app, "Invocation", failing(error))
    monkeypatch.setattr(app, "_close_output", lambda: None)
    assert app.run(["list"]) == code
    assert capsys.readouterr().err == message


def test_a_failed_job_shows_condition_remedy_and_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = StageFailedError("it broke", remedy="Fix it.", log_name="a pod", log=["the end"])
    monkeypatch.setattr(app, "Invocation", failing(error))
    assert app.run(["list"]) == 1
    shown = capsys.readouterr().err
    assert shown.index("it broke") < shown.index("Fix it.") < shown.index("the end")


def test_options_after_the_command_win_over_those_before_it() -> None:
    base = Invocation(namespace="before", request_seconds=5.0)
    assert base.changed(namespace="after").namespace == "after"
    assert base.changed(namespace=None).namespace == "before"
    assert base.changed(request_timeout=None).request_seconds == 5.0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_cannot_show_a_character_gets_its_code(encoding: str) -> None:
    code = "from rl_console import app; app.run = lambda _: print('3 – 4…'); app.main()"
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True)
    assert (done.stdout, done.stderr) == (b"3 \\u2013 4\\u2026\n", b"")


@pytest.mark.parametrize("long", [False, True])
def test_a_full_disk_is_one_line(long: bool) -> None:
    """Python keeps a short text until the end of the process."""
    code = (
        f"from rl_console import app; app.build = lambda: lambda **_: print({long} * 99999 * 'x')"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\napp.main()"],
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
        )
    said = b"error: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_an_output_that_nobody_reads_ends_without_a_word() -> None:
    code = "from rl_console import app; app.build = lambda: lambda **_: print('x'); app.main()"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_closed_output_gets_nothing() -> None:
    """As by `>&-` of a shell."""
    code = (
        "from rl_console import app, output; "
        "app.build = lambda: lambda **_: print('x', output.width()); app.main()"
    )
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_server_whose_certificate_is_not_to_be_checked_causes_no_warning(tmp_path: Path) -> None:
    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "13")
            self.end_headers()
            self.wfile.write(b'{"items": []}')

        def log_message(self, *_: object) -> None:
            pass

    with listening(Empty, context=Authority().context(tmp_path)) as url:
        cluster = {"server": url, "insecure-skip-tls-verify": True}
        file = kubeconfig(tmp_path, cluster, {"token": "t"})
        command = [sys.executable, "-m", "rl_console", "--kubeconfig", str(file), "list"]
        done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "No RLJobs in namespace default.\n")
