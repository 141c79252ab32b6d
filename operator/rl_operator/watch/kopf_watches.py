"""Kopf, which is used for its lists and watches alone.

What they tell is taken from their answers; its handlers do nothing, and it writes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import kopf

from rl_operator.kube import kinds, names
from rl_operator.kube.settings import Settings
from rl_operator.watch.informer import Feed
from rl_operator.watch.watch_interceptor import Told, Whole
from rl_operator.watch.watchdog import Streams, session_for
from rl_operator.watch.watches import others_kinds

OWN_CHILDREN = (kinds.DEPLOYMENT, kinds.POD)


async def watch(
    settings: Settings,
    *,
    streams: Streams,
    feed: Feed,
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """List and watch until told to stop.

    Args:
        settings: which namespaces, and which kinds of others.
        streams: hear of every watch.
        feed: is told what they tell.
        ready: set once the watches are about to begin.
        stop: ends them; cancelled, kopf may hang.
    """

    async def login(**known: Any) -> kopf.AiohttpSession | None:
        found = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
        if found is None:
            return None
        return _listened_to(found, streams, told=feed.watched, whole=feed.listed_all)

    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(login)
    for kind in (kinds.RLJOB, kinds.SAMPLER_POOL, *OWN_CHILDREN, *others_kinds(settings)):
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(
            _nothing
        )
    namespaces = settings.watch_namespaces
    await kopf.operator(
        registry=registry,
        settings=_kopf_settings(),
        identity=settings.identity,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        ready_flag=ready,
        stop_flag=stop,
    )


async def _nothing(**_: Any) -> None:
    """Kopf watches the kinds that somebody handles; what it lists and watches is taken before."""


def _listened_to(
    info: kopf.ConnectionInfo, streams: Streams, *, told: Told, whole: Whole
) -> kopf.AiohttpSession:
    """What kopf would make of its credentials, but with watches that the watchdog hears."""
    session = session_for(
        streams,
        told=told,
        whole=whole,
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


class _NoDifferences(kopf.DiffBaseStorage):  # type: ignore[misc]  # what mypy reads of kopf: nothing
    """Objects without an essence: nobody asks what has changed in one since its last event.

    Kopf takes a deep copy of every object of every event for that, several times: more than half of
    the processor time that bringing a job up took.
    """

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        """Nothing."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing was stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is stored."""


def _kopf_settings() -> kopf.OperatorSettings:
    """No posts, no scans of the cluster, no copies; children by our label alone."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # else it lists CRDs and namespaces of the cluster
    settings.watching.chunk_size = 500
    settings.persistence.diffbase_storage = _NoDifferences()
    for kind in (*OWN_CHILDREN, kinds.PYTORCH_JOB, kinds.WORKLOAD):
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = names.JOB_LABEL
    return settings
