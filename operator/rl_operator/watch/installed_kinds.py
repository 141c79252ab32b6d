"""Which kinds are installed: our own must be, those of other operators may be installed later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiMissingError, ApiUnavailableError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Kind
from rl_operator.kube.settings import Settings
from rl_operator.watch.watches import others_kinds

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Between two checks for a kind that is not installed."""


def missing_kinds(cluster: Cluster, settings: Settings) -> list[Kind]:
    """Kinds of other operators that are not installed.

    Raises:
        ApiMissingError: our own kinds are not installed.
    """
    namespace = _readable_namespace(settings)
    for kind in (kinds.RLJOB, kinds.SAMPLER_POOL):
        if not cluster.serves(kind, namespace):
            message = f"the kind {kind.name} is not installed: install the CRDs of rl-operator"
            raise ApiMissingError(doing="starting", status=404, message=message)
    return [kind for kind in others_kinds(settings) if not cluster.serves(kind, namespace)]


async def first_installed(cluster: Cluster, settings: Settings, missing: Collection[Kind]) -> None:
    """Return once one of the missing kinds is installed: kopf itself does not look for it again."""
    for kind in missing:
        log.warning("the kind %s is not installed: jobs wait for it", kind.name)
    while True:
        for kind in missing:
            if await asyncio.to_thread(_is_served, cluster, kind, settings):
                log.info("the kind %s is installed now: restarting to watch it", kind.name)
                return
        await asyncio.sleep(POLL_SECONDS)


def _is_served(cluster: Cluster, kind: Kind, settings: Settings) -> bool:
    """Whether a kind is installed; False while the API server does not answer."""
    try:
        return cluster.serves(kind, _readable_namespace(settings))
    except ApiUnavailableError:
        return False


def _readable_namespace(settings: Settings) -> str:
    """A namespace in which the operator may list its kinds."""
    return (*settings.watch_namespaces, settings.namespace)[0]
