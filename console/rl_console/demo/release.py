"""Helm's release of the demo: whether it is the demo's own, and what an interrupted helm left."""

from __future__ import annotations

import json
from typing import Any

import yaml

from rl_console import tools
from rl_console.demo.settings import IMAGES, RELEASE, RELEASE_NAMESPACE, DemoSettings
from rl_console.errors import StageFailedError
from rl_console.tools import Tools

REPAIR_SECONDS = 400.0
SET_BY_DEMO = frozenset(
    {
        *(f"images.{image}" for image in IMAGES),
        "imagePullPolicy",
        "stores.embedded.enabled",
        "stores.embedded.allowSharing",
        "stores.storageClass",
        "stores.namespaces",
    }
)
"""Every value of the chart that the demo sets."""
OTHER_RELEASE_REMEDY = (
    "Nothing was changed. Run the demo on another cluster (CONTEXT=…). If nobody needs this "
    f"release, uninstall it first: helm uninstall {RELEASE} --namespace {RELEASE_NAMESPACE}."
)


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values by their dotted names, e.g. ``kueue.enabled``; a list is one value."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            named |= leaves(value, f"{prefix}{name}.")
        else:
            named[prefix + name] = value
    return named


def differences(config: dict[str, Any], *, defaults: dict[str, Any]) -> list[str]:
    """What shows that a release is not the demo's; empty: it is.

    Args:
        config: the values that its user set.
        defaults: the chart's values. One that is set to its default changes nothing.
    """
    chosen, usual = leaves(config), leaves(defaults)
    others = sorted(name for name in chosen.keys() - SET_BY_DEMO if chosen[name] != usual.get(name))
    if others:
        return [f"it sets {', '.join(others)}, which the demo would drop"]
    missing = [
        name for name in ("imagePullPolicy", "stores.embedded.enabled") if not chosen.get(name)
    ]
    return [f"it does not set {', '.join(missing)}, as the demo does"] if missing else []


def read_own(settings: DemoSettings) -> dict[str, Any]:
    """Helm's record of the demo's release and its values; empty when none is installed.

    Raises:
        StageFailedError: somebody else's release has its name.
    """
    release = _release(settings.tools)
    if not release:
        return {}
    chart = settings.checkout / "charts" / RELEASE / "values.yaml"
    shown = differences(release["config"], defaults=yaml.safe_load(chart.read_text()))
    if shown:
        raise StageFailedError(
            f"the Helm release {RELEASE} in namespace {RELEASE_NAMESPACE} was not installed "
            f"by the demo, or was changed since: {'; '.join(shown)}",
            remedy=OTHER_RELEASE_REMEDY,
        )
    return release


def repair_interrupted(chosen: Tools, release: dict[str, Any]) -> None:
    """Uninstall or roll back a release that an interrupted helm left pending."""
    status = release.get("status", "")
    if status == "pending-install":
        command = chosen.helm_command("uninstall", RELEASE, "--namespace", RELEASE_NAMESPACE)
    elif status.startswith("pending-"):
        command = chosen.helm_command("rollback", RELEASE, "--namespace", RELEASE_NAMESPACE)
    else:
        return
    tools.run(command, seconds=REPAIR_SECONDS, doing=f"repairing a release with status {status}")


def _release(chosen: Tools) -> dict[str, Any]:
    """Helm's record of the release and its values; empty when it is not installed."""
    command = chosen.helm_command(
        "list",
        "--namespace",
        RELEASE_NAMESPACE,
        "--all",
        "--filter",
        f"^{RELEASE}$",
        "--output",
        "json",
    )
    releases: list[dict[str, Any]] = json.loads(tools.run(command, doing="listing helm releases"))
    if not releases:
        return {}
    command = chosen.helm_command(
        "get", "values", RELEASE, "--namespace", RELEASE_NAMESPACE, "--output", "json"
    )
    values = json.loads(tools.run(command, doing="reading the release's values"))
    return {**releases[0], "config": values or {}}
