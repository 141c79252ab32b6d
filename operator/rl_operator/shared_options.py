"""Options of a pool that serves several runs at once which it could not honour: refused by name."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import SamplerPoolSpec

OF_EACH_RUN = ("agent", "stage", "sandbox")
"""Containers that there are for each run, under names of their own."""
VOLUMES_OF_EACH_RUN = ("weights", "tmp", "code")


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
            field=f"{at}.template.autoscaling.mode", value=scaling.mode, reason="PoolRefused",
            message="It is judged by what one run has shown; with spec.maxRuns above 1 there are "
            "several.",
            remedy="Use mode None, and /scale, which an HPA or KEDA may set; or maxRuns 1.",
        )  # fmt: skip
    pod = (spec.template.pod_template or {}).get("spec") or {}
    for key in ("containers", "initContainers"):
        for index, one in enumerate(pod.get(key) or []):
            if one.get("name") in OF_EACH_RUN:
                yield _own(f"{at}.template.podTemplate.spec.{key}[{index}].name", one["name"])
    for index, one in enumerate(pod.get("volumes") or []):
        if one.get("name") in VOLUMES_OF_EACH_RUN:
            yield _own(f"{at}.template.podTemplate.spec.volumes[{index}].name", one["name"])


def _own(field: str, name: str) -> Refusal:
    return Refusal(
        field=field, value=name, reason="PoolRefused",
        message="With spec.maxRuns above 1 each run has one of its own, under another name.",
        remedy="Remove it, or set maxRuns to 1.",
    )  # fmt: skip
