"""Options of a pool that serves several runs at once which it could not honour: refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import SamplerPoolSpec

CONTAINERS = re.compile(r"(agent|stage|sandbox)(-.*)?")
"""Those that there are for each run, under names of their own with its job's behind."""
VOLUMES = re.compile(
    r"weights|tmp|code|model|"
    r"(weights|tmp|code|spec|stores|hub|sandbox|tool-.+|endpoint-.+)-[0-9]"
)
"""Likewise, with the run's place at the engine behind; and the one that they share."""


def of_several(at: str, spec: SamplerPoolSpec) -> Iterator[Refusal]:
    """What does not go with ``spec.maxRuns`` above 1.

    Args:
        at: where the pool's spec was written, e.g. ``spec``.
        spec: of the pool.
    """
    if spec.max_runs == 1:
        return
    scaling = spec.template.autoscaling
    if scaling.mode == "Builtin":
        yield Refusal(
            field=f"{at}.template.autoscaling.mode",
            value=scaling.mode,
            reason="PoolRefused",
            message="It is judged by what one run has shown; with spec.maxRuns above 1 there are "
            "several.",
            remedy="Use mode None, and /scale, which an HPA or KEDA may set; or maxRuns 1.",
        )
    pod = (spec.template.pod_template or {}).get("spec") or {}
    for key in ("containers", "initContainers"):
        for index, one in enumerate(pod.get(key) or []):
            if CONTAINERS.fullmatch(one.get("name", "")):
                yield _own(f"{at}.template.podTemplate.spec.{key}[{index}].name", one["name"])
    for index, one in enumerate(pod.get("volumes") or []):
        if VOLUMES.fullmatch(one.get("name", "")):
            yield _own(f"{at}.template.podTemplate.spec.volumes[{index}].name", one["name"])


def _own(field: str, name: str) -> Refusal:
    return Refusal(
        field=field,
        value=name,
        reason="PoolRefused",
        message="With spec.maxRuns above 1 each run has one of its own, under a name like this.",
        remedy="Remove it, name it otherwise, or set maxRuns to 1.",
    )
