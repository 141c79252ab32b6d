"""``kubectl rl``: the command line, its errors and its exit codes."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rl_console import __version__
from rl_console.commands import MODULES
from rl_console.errors import FAILED, INTERRUPTED, USAGE, ConsoleError, StageFailedError
from rl_console.invocation import (
    Context,
    Form,
    Invocation,
    Kubeconfig,
    Namespace,
    RequestTimeout,
    require_finite,
)
from rl_console.plain_text import plain_line
from rl_console.tools import Tools
from rl_contracts.errors import RLError

PROGRAM = "kubectl rl"
EPILOG = "`kubectl rl COMMAND --help` shows options and examples of a command."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MOST_CHARACTERS = 4000


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kubectl-rl {__version__}")
        raise typer.Exit


def connect(
    context: typer.Context,
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    request_timeout: RequestTimeout = None,
    output: Form = None,
    kubectl: Annotated[
        str, typer.Option(envvar="KUBECTL", help="kubectl program to run.")
    ] = "kubectl",
    helm: Annotated[str, typer.Option(envvar="HELM", help="helm program to run.")] = "helm",
) -> None:
    """Write, run and watch RL post-training jobs on Kubernetes."""
    require_finite({"request_timeout": request_timeout})
    base = Invocation(tools=Tools(kubectl=kubectl, helm=helm))
    context.obj = base.changed(
        kubeconfig=kubeconfig,
        kube_context=kube_context,
        namespace=namespace,
        request_timeout=request_timeout,
        output=output,
    )


def build() -> typer.Typer:
    """The command line with all commands."""
    app = typer.Typer(
        name="kubectl-rl",
        add_completion=False,  # typer's would replace kubectl's: kubectl calls kubectl_complete-rl
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(connect)
    for module in MODULES:
        module.register(app)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; an error is printed in one line."""
    try:
        code = build()(args=list(arguments) or ["--help"], prog_name=PROGRAM, standalone_mode=False)
    except typer.Abort:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except typer.TyperException as error:
        return _usage(error)
    except StageFailedError as failure:
        _print_failure(failure)
        return FAILED
    except ConsoleError as error:
        _print_error(str(error))
        return error.exit_code
    except RLError as error:
        _print_error(str(error))
        return FAILED
    except OSError as error:
        return _output_lost(error)
    return code if isinstance(code, int) else 0


def _output_lost(error: OSError) -> int:
    """End quietly where nobody reads the output, and say that it is full; other errors go on."""
    if not isinstance(error, BrokenPipeError):  # that is e.g. `| head`
        if error.errno not in FULL:
            raise error
        _print_error(f"the output cannot be written: {error.strerror}")
    _close_output()
    return FAILED


def _close_output() -> None:
    """Give up the output: Python would complain again when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else PROGRAM
    message = error.format_message().rstrip(".")
    end = "" if message.endswith("?") else "."
    _print_error(f"{message}{end} See `{path} --help`")
    return USAGE


def _print_error(message: str) -> None:
    typer.secho(
        f"error: {plain_line(message, longest=MOST_CHARACTERS)}", err=True, fg=typer.colors.RED
    )


def _print_failure(failure: StageFailedError) -> None:
    from rich.console import Console

    from rl_console.following.session import print_failure

    print_failure(Console(stderr=True), failure)


def _open_closed_output() -> None:
    """Write to nowhere what a shell has closed, e.g. by ``>&-``: Python gives no stream for it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open to the end


def main() -> None:
    """Run the command line of this process and end with its exit code."""
    _open_closed_output()
    # Who has written insecure-skip-tls-verify knows; kubectl is silent, too.
    warnings.filterwarnings("ignore", message="Unverified HTTPS request")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # Latin-1 has no dash, and ASCII no ellipsis
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _output_lost(error)
    sys.exit(code)
