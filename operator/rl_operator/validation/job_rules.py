"""What the cluster's administrator does not let jobs do: values of the chart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rl_contracts.errors import Refusal
from rl_contracts.pod_overlay import CONTAINER_LISTS
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import Placement, SamplerTemplate
from rl_operator.kube.settings import JobRules
from rl_operator.state import pool_ref
from rl_operator.validation import pod_security

DEFAULT_ACCOUNT = "default"
ANY = "*"
DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")
ACCOUNT_KEYS = ("serviceAccountName", "serviceAccount")
"""The second is an old name of the first, which the API server still reads."""


def of_spec(spec: RLJobSpec, rules: JobRules, *, started: bool = False) -> Iterator[Refusal]:
    """Refusals of a job by the administrator's rules.

    Once a job has ``started``, images in its fixed sections are not judged: nobody could mend them
    where a rule came later, by an upgrade or by the administrator.
    """
    yield from _of_queue(spec, rules)
    trainer = spec.trainer
    yield from _of_placement("spec.trainer", trainer, rules)
    yield from _of_image("spec.trainer.image", trainer.image, rules)
    if not started:
        yield from _of_fixed_images(spec, rules)
    yield from _of_sandboxes(spec, rules)
    for index, group in enumerate(spec.samplers):
        yield from of_template(pool_ref.place(index, group), group.template, rules)


def _of_fixed_images(spec: RLJobSpec, rules: JobRules) -> Iterator[Refusal]:
    yield from _of_image("spec.code.image", spec.code.image, rules)
    if spec.agent.program is not None:
        yield from _of_image("spec.agent.program.image", spec.agent.program.image, rules)
        for index, image in enumerate(spec.agent.program.images):
            yield from _of_image(f"spec.agent.program.images[{index}]", image, rules)
    if spec.agent.environment is not None:
        yield from _of_image("spec.agent.environment.image", spec.agent.environment.image, rules)


def of_template(at: str, template: SamplerTemplate, rules: JobRules) -> Iterator[Refusal]:
    """Refusals of a sampler template; ``at`` is its path."""
    yield from _of_placement(at, template, rules)
    yield from _of_image(f"{at}.image", template.image, rules)
    yield from _of_image(f"{at}.engine.image", template.engine.image, rules)


def _of_placement(at: str, placement: Placement, rules: JobRules) -> Iterator[Refusal]:
    yield from _of_account(f"{at}.serviceAccountName", placement.service_account_name, rules)
    pod = _map((placement.pod_template or {}).get("spec"))
    for key in ACCOUNT_KEYS:
        yield from _of_account(f"{at}.podTemplate.spec.{key}", pod.get(key), rules)
    for path, image in _images(pod):
        yield from _of_image(f"{at}.podTemplate.spec.{path}", image, rules)
    if not rules.unrestricted_pods:
        yield from pod_security.refusals(f"{at}.podTemplate", placement.pod_template)


def _images(pod: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Images of the containers and volumes of a user's pod, each with its path."""
    for key in CONTAINER_LISTS:
        for index, container in enumerate(_list(pod.get(key))):
            yield f"{key}[{index}].image", _map(container).get("image")
    for index, volume in enumerate(_list(pod.get("volumes"))):
        image = _map(_map(volume).get("image"))
        yield f"volumes[{index}].image.reference", image.get("reference")


def _of_account(field: str, name: Any, rules: JobRules) -> Iterator[Refusal]:
    if (
        name in (None, "", DEFAULT_ACCOUNT, *rules.service_accounts)
        or ANY in rules.service_accounts
    ):
        return
    allowed = ", ".join((DEFAULT_ACCOUNT, *rules.service_accounts))
    yield Refusal(
        field=field,
        value=str(name)[:200],
        reason="ServiceAccountRefused",
        message="Pods of jobs may not use this service account.",
        remedy=f"Use one of {allowed}, or ask the cluster's administrator to add it to "
        "pods.serviceAccounts in the values of the operator's chart.",
    )


def _of_image(field: str, image: Any, rules: JobRules) -> Iterator[Refusal]:
    """An image that may change under a run, by the tag that names it."""
    if not isinstance(image, str) or DIGEST.fullmatch(image):
        return
    if rules.digests_required:
        message = "The cluster's administrator lets jobs use images with a digest only."
        remedy = "Append the image's digest: name@sha256:…"
    elif _tag(image) in ("", "latest"):
        message = "Pods of one run may get different images: there is no tag, or the tag latest."
        remedy = "Name a tag that does not change, or a digest: name@sha256:…"
    else:
        return
    yield Refusal(
        field=field, value=image[:200], reason="ImageNotPinned", message=message, remedy=remedy
    )


def _tag(image: str) -> str:
    """The tag of an image reference; empty without one. A host may have a port."""
    _, colon, tag = image.rpartition(":")
    return tag if colon and "/" not in tag else ""


def _of_queue(spec: RLJobSpec, rules: JobRules) -> Iterator[Refusal]:
    if not rules.queue_required:
        return
    if not spec.scheduling.queued:
        remedy = "Set provider to Kueue and queueName to a LocalQueue of the namespace."
        yield _not_queued("provider", "None", remedy)
    elif spec.scheduling.sampler_quota != "MaxReplicas":
        yield _not_queued("samplerQuota", spec.scheduling.sampler_quota, "Use MaxReplicas.")


def _of_sandboxes(spec: RLJobSpec, rules: JobRules) -> Iterator[Refusal]:
    program = spec.agent.program
    if program is None or not program.sandboxed or rules.agent_sandbox:
        return
    yield Refusal(
        field="spec.agent.program.podsFrom",
        value=program.pods_from,
        reason="AgentSandboxSwitchedOff",
        message="This operator may not write objects of agent-sandbox.",
        remedy="Ask the cluster's administrator to set agentSandbox.enabled in the values of the "
        "operator's chart, or use podsFrom: Deployment.",
    )


def _not_queued(field: str, value: str, remedy: str) -> Refusal:
    return Refusal(
        field=f"spec.scheduling.{field}",
        value=value,
        reason="QueueRequired",
        message="The cluster's administrator wants a queue to admit all pods of jobs.",
        remedy=remedy,
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
