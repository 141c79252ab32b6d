"""An admission webhook that does not answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rl_operator.kube.kinds import Kind
from tests.contract.rl_operator.world import World
from tests.waiting import until

CONFIGURATION = "validatingwebhookconfiguration"


@contextmanager
def silent_webhook(
    world: World, kind: Kind, operations: Sequence[str], *, try_out: Callable[[], str]
) -> Iterator[str]:
    """Name of an active webhook for the namespace's objects of a kind, until the block ends.

    Args:
        world: whose namespace it concerns.
        kind: of the objects.
        operations: what it is asked about.
        try_out: does such an operation as a dry run; kubectl's complaint.
    """
    name = f"silent.{world.namespace}.test"
    hook = {
        "name": name,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        "rules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": ["*"],
                "operations": list(operations),
                "resources": [kind.plural, f"{kind.plural}/status"],
            }
        ],
    }
    manifest = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }
    world.apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    until(lambda: name in try_out(), what="the API server to ask the webhook")
    yield name
    world.apiserver.kubectl("delete", CONFIGURATION, name, "--ignore-not-found")
