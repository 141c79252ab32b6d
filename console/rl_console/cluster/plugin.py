"""Runs the credential plugin of a kubeconfig's user as kubectl does; the client library differs.

The library hides what a plugin asks for unless standard output is a terminal.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from datetime import datetime
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
"""What a plugin that wants it is told of a cluster, besides its certificates and settings."""
SETTINGS = "client.authentication.k8s.io/exec"
"""Name of the cluster's extension that is meant for plugins."""


def credential(plugin: ConfigNode, cluster: ConfigNode, *, authorities: str | None) -> Any:
    """Run a plugin; return the ``status`` of its answer, which has a token or a certificate.

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
        spec["cluster"] = _told(cluster.value, authorities)
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    given = {each["name"]: each["value"] for each in plugin.safe_get("env") or ()}
    printed = _printed(
        [command, *(plugin.safe_get("args") or ())],
        environment={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        stdin=None if interactive else subprocess.DEVNULL,
        doing=doing,
        hint=plugin.safe_get("installHint") or "",
    )
    return _status(printed, version, doing=doing)


def _is_interactive(mode: str | None, *, doing: str) -> bool:
    terminal = mode != "Never" and os.isatty(STDIN)
    if mode == "Always" and not terminal:
        raise NotLoggedInError(
            doing=doing,
            cause="it asks the user, and standard input is no terminal",
            remedy="Log in from a terminal, or use a context whose plugin asks nothing",
        )
    return terminal


def _told(cluster: Mapping[str, Any], authorities: str | None) -> dict[str, Any]:
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
            command, stdin=stdin, stdout=subprocess.PIPE, env=environment, check=False
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


def _status(printed: bytes, version: str, *, doing: str) -> Any:
    """The credential of an answer; messages do not quote it, because it is a secret."""
    try:
        answer = json.loads(printed)
    except ValueError:
        answer = None
    status = answer.get("status") if isinstance(answer, dict) else None
    cause = ""
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        cause = "its answer is no ExecCredential in JSON"
    elif answer.get("apiVersion") != version:
        cause = f"its answer has the apiVersion {answer.get('apiVersion')}, not {version}"
    elif not isinstance(status, dict) or not _is_enough(status):
        cause = "its answer has neither a token nor a certificate with its key"
    elif not _is_time(status.get("expirationTimestamp")):
        cause = "the expirationTimestamp of its answer is no time"
    if cause:
        raise NotLoggedInError(doing=doing, cause=cause, remedy=LOG_IN)
    return status


def _is_enough(status: Mapping[str, Any]) -> bool:
    certificate, key = (bool(status.get(f"client{each}Data")) for each in ("Certificate", "Key"))
    return certificate == key and (certificate or bool(status.get("token")))


def _is_time(given: object) -> bool:
    try:
        return not given or bool(datetime.fromisoformat(str(given)))
    except ValueError:
        return False
