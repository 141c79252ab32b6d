"""Runs kubectl and helm, for what the API client cannot do."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_console.errors import RequestRefusedError

CALL_SECONDS = 60.0
END_SECONDS = 10.0
OPERATOR_NAMESPACE = "rl-system"
"""Where the guide installs the operator with Helm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Paths of kubectl and helm, and the cluster that they connect to."""

    kubectl: str = "kubectl"
    helm: str = "helm"
    kubeconfig: Path | None = None
    context: str | None = None

    def kubectl_command(self, *arguments: str) -> list[str]:
        """A kubectl command line for the cluster."""
        return [self.kubectl, *cluster_options(self.kubeconfig, self.context), *arguments]

    def helm_command(self, *arguments: str) -> list[str]:
        """A helm command line for the cluster."""
        chosen = _kubeconfig_option(self.kubeconfig)
        chosen += ["--kube-context", self.context] if self.context else []
        return [self.helm, *chosen, *arguments]


def cluster_options(kubeconfig: Path | None, context: str | None) -> list[str]:
    """Options of kubectl that choose a cluster; empty: kubectl's default is meant."""
    return [*_kubeconfig_option(kubeconfig), *(["--context", context] if context else [])]


def _kubeconfig_option(kubeconfig: Path | None) -> list[str]:
    """The option, without a ``~`` in front, which neither kubectl nor a quoting shell expands."""
    return ["--kubeconfig", str(kubeconfig.expanduser())] if kubeconfig else []


def run(
    command: Sequence[str], *, stdin: str = "", seconds: float = CALL_SECONDS, doing: str = ""
) -> str:
    """Run a command and return its output.

    Raises:
        RequestRefusedError: it failed, does not exist or did not end in time.
    """
    doing = doing or " ".join(command[:1])
    try:
        done = subprocess.run(
            list(command), input=stdin, capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError as error:
        raise RequestRefusedError(doing=doing, cause=f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise RequestRefusedError(doing=doing, cause=f"no end within {seconds:.0f} s") from error
    if done.returncode:
        raise RequestRefusedError(doing=doing, cause=done.stderr.strip() or done.stdout.strip())
    return done.stdout


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process: SIGTERM first, SIGKILL after END_SECONDS."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
