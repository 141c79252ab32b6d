"""Runs the credential plugin of a kubeconfig's user as kubectl does; the client library differs.

The library hides what a plugin asks for unless standard output is a terminal.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes.config.kube_config import ConfigNode

from rl_console.errors import NotLoggedInError

STDIN = 0
LOG_IN = "Log in again as the plugin says, until `kubectl get rljobs` works"
CLUSTER_KEYS = (
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "proxy-url",
    "disable-compression",
)
"""Parts of a cluster that a plugin gets if it asks for them, with certificates and settings."""
SETTINGS = "client.authentication.k8s.io/exec"
"""Name of the cluster's extension that is meant for plugins."""
PARTS = ("token", "clientCertificateData", "clientKeyData")
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
NEVER = datetime.min.replace(tzinfo=UTC)
"""Go's time without a value; kubectl takes it for no expiry."""


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What a plugin answers, a token or a certificate or both; other texts are empty."""

    token: str
    certificate: str
    key: str
    expiry: datetime | None
    """None: it does not run out."""


def credential(plugin: ConfigNode, cluster: ConfigNode, *, authorities: str | None) -> Credential:
    """Run a plugin; return its answer.

    It runs in the current folder, and writes to standard error. It may ask the user where standard
    input is a terminal.

    Args:
        plugin: the ``exec`` of a user.
        cluster: that the credential is for.
        authorities: certificates that the server's is checked by, in Base64.

    Raises:
        ConfigException: the kubeconfig names no command or no apiVersion.
        NotLoggedInError: there is no credential.
    """
    command, version = plugin["command"], plugin["apiVersion"]
    if "/" in command and plugin.path:
        command = str(Path(plugin.path).absolute().parent / command)
    doing = f"running the kubeconfig's credential plugin {command}"
    interactive = _is_interactive(plugin.safe_get("interactiveMode"), doing=doing)
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.safe_get("provideClusterInfo"):
        spec["cluster"] = _described(cluster.value, authorities)
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    given = {each["name"]: each.get("value") or "" for each in plugin.safe_get("env") or ()}
    printed = _printed(
        [command, *(plugin.safe_get("args") or ())],
        environment={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        stdin=None if interactive else subprocess.DEVNULL,
        doing=doing,
        hint=plugin.safe_get("installHint") or "",
    )
    try:
        return _parsed(printed, version)
    except ValueError as error:
        raise NotLoggedInError(doing=doing, cause=str(error), remedy=LOG_IN) from None


def _is_interactive(mode: str | None, *, doing: str) -> bool:
    terminal = mode != "Never" and os.isatty(STDIN)
    if mode == "Always" and not terminal:
        raise NotLoggedInError(
            doing=doing,
            cause="it asks the user, and standard input is no terminal",
            remedy="Log in from a terminal, or use a context whose plugin asks nothing",
        )
    return terminal


def _described(cluster: Mapping[str, Any], authorities: str | None) -> dict[str, Any]:
    described = {key: cluster[key] for key in CLUSTER_KEYS if cluster.get(key)}
    if authorities:
        described["certificate-authority-data"] = authorities
    for each in cluster.get("extensions") or ():
        if each["name"] == SETTINGS:
            described["config"] = each["extension"]
    return described


def _printed(
    command: list[str],
    *,
    environment: Mapping[str, str],
    stdin: int | None,
    doing: str,
    hint: str,
) -> bytes:
    """What a command writes to standard output."""
    try:
        ended = subprocess.run(
            command,
            executable=_program(command[0]),
            stdin=stdin,
            stdout=subprocess.PIPE,
            env=environment,
            check=False,
        )
    except OSError as error:
        remedy = hint or "Install it, or correct the user's exec.command in the kubeconfig"
        raise NotLoggedInError(
            doing=doing, cause=f"it cannot be run: {error.strerror}", remedy=remedy
        ) from error
    if ended.returncode:
        cause = (
            f"it ended with exit code {ended.returncode}; what it wrote to standard error says why"
        )
        raise NotLoggedInError(doing=doing, cause=cause, remedy=LOG_IN)
    return ended.stdout


def _program(command: str) -> str:
    """The file of a command; the PATH of this process counts, not that of the plugin."""
    if "/" in command:
        return command
    program = shutil.which(command)
    if not program:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return str(Path(program).absolute())


def _parsed(printed: bytes, version: str) -> Credential:
    """The credential of an answer.

    Raises:
        ValueError: says what is wrong, without a quotation: a credential is a secret.
    """
    status = _status(printed, version)
    texts = [status.get(part) for part in PARTS]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError("the token, certificate or key of its answer is no text")
    token, certificate, key = (text or "" for text in texts)
    if bool(certificate) != bool(key) or not (token or certificate):
        raise ValueError("its answer has neither a token nor a certificate with its key")
    return Credential(token, certificate, key, _expiry(status.get("expirationTimestamp")))


def _status(printed: bytes, version: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(printed)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise ValueError("its answer is no ExecCredential in JSON")
    if answer.get("apiVersion") != version:
        raise ValueError(f"its answer has the apiVersion {answer.get('apiVersion')}, not {version}")
    status = answer.get("status")
    return status if isinstance(status, dict) else {}


def _expiry(given: object) -> datetime | None:
    if given is None:
        return None
    try:
        if isinstance(given, str) and RFC_3339.fullmatch(given):
            expiry = datetime.fromisoformat(given)
            return None if expiry == NEVER else expiry
    except ValueError:  # e.g. a month 13
        pass
    raise ValueError(
        "the expirationTimestamp of its answer is no time of RFC 3339, as 2030-01-31T12:00:00Z is"
    )
