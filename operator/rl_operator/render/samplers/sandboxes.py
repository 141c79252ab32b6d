"""Pods of single episodes that agent-sandbox makes: ``agent.program.podsFrom: AgentSandbox``.

A SandboxTemplate has the pods' template, and a SandboxWarmPool keeps spare pods of it. Each
SandboxClaim takes a pod out of the warm pool, or has one made, and that pod serves one episode: the
operator deletes the claim then, with its pod, and makes a new one. So the claims stand where the
replicas of a Deployment do otherwise. The operator makes them ahead, because agents, which know
when an episode begins, have no token of the API server; they claim one of these pods over its
connection, as any other. Only pods of a claim have the label that the Service selects.

Each claim has a place, a number of so many, and a name that begins with that of its place and never
serves twice. A Sandbox that was started for a claim has the claim's name and is there until garbage
is collected, and agent-sandbox gives a claim no pod while another's Sandbox has its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rl_operator.kube import kinds, names
from rl_operator.render.samplers.beside import Beside

Manifest = dict[str, Any]

CLAIMED = {names.CLAIMED_LABEL: "true"}


def objects(pods: Beside, template: Manifest, *, claims: int, spare: int) -> list[Manifest]:
    """The template, the warm pool and the claims of the pods of an image.

    The claims have the names of their places.

    Args:
        pods: of the image.
        template: of the pods.
        claims: how many pods serve episodes.
        spare: how many more stand ready where there are claims.
    """
    blueprint = {
        "podTemplate": template,
        "service": False,
        "networkPolicyManagement": "Unmanaged",  # the pool's own policy selects these pods
        "envVarsInjectionPolicy": "Disallowed",
        "volumeClaimTemplatesPolicy": "Disallowed",
    }
    warm_pool = {
        "replicas": spare if claims else 0,
        "sandboxTemplateRef": {"name": pods.name},
        "updateStrategy": {"type": "Recreate"},
    }
    claim = {
        "warmPoolRef": {"name": pods.name},
        "additionalPodMetadata": {"labels": dict(CLAIMED)},
    }
    places = (place(pods.name, template, number) for number in range(claims))
    return [
        pods.child(kinds.SANDBOX_TEMPLATE, blueprint),
        pods.child(kinds.SANDBOX_WARM_POOL, warm_pool),
        *(pods.child(kinds.SANDBOX_CLAIM, claim, name=name) for name in places),
    ]


def place(pods: str, template: Manifest, number: int) -> str:
    """Name of a claim's place; another template has other places, and so new pods.

    Args:
        pods: name of the objects of the image.
        template: of the pods.
        number: of the claim, from 0.
    """
    return f"{pods}-{names.digest(template, length=6)}-{number}"


def named(
    claims: Iterable[Manifest], *, existing: Iterable[str], token: Callable[[], str]
) -> list[Manifest]:
    """The claims with the names of those that exist in their places, and with new names elsewhere.

    Args:
        claims: with the names of their places.
        existing: names of claims that are not being deleted.
        token: another text without a hyphen at each call.
    """
    held = {name.rpartition("-")[0]: name for name in sorted(existing)}
    at = [(claim, claim["metadata"]["name"]) for claim in claims]
    return [
        claim | {"metadata": claim["metadata"] | {"name": held.get(name) or f"{name}-{token()}"}}
        for claim, name in at
    ]
