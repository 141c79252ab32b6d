"""Kopf, used for its lists and watches alone.

Objects are taken from the answers before kopf reads them; its handlers do nothing, and it writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import kopf

from rl_operator.kube import kinds, names
from rl_operator.kube.settings import Settings
from rl_operator.watch.informer import Informer
from rl_operator.watch.watch_interceptor import OnList, OnObject
from rl_operator.watch.watchdog import Watchdog, session_for
from rl_operator.watch.watches import others_kinds

OWN_CHILDREN = (kinds.DEPLOYMENT, kinds.POD)


async def watch(
    settings: Settings,
    *,
    watchdog: Watchdog,
    informer: Informer,
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """List and watch until ``stop`` is set.

    Args:
        settings: which namespaces, and which kinds of other operators.
        watchdog: hears from every watch.
        informer: receives the objects.
        ready: set once the watches are about to begin.
        stop: ends them; cancelled, kopf may hang.
    """

    async def login(**known: Any) -> kopf.AiohttpSession | None:
        info = kopf.login_with_service_account(**known) or kopf.login_with_kubeconfig(**known)
        if info is None:
            return None
        return _intercepted(
            info, watchdog, on_object=informer.observed, on_list=informer.list_ended
        )

    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(login)
    for kind in (kinds.RLJOB, kinds.SAMPLER_POOL, *OWN_CHILDREN, *others_kinds(settings)):
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(
            _do_nothing
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


async def _do_nothing(**_: Any) -> None:
    """Kopf watches only kinds that have a handler. The objects are intercepted before."""


def _intercepted(
    info: kopf.ConnectionInfo, watchdog: Watchdog, *, on_object: OnObject, on_list: OnList
) -> kopf.AiohttpSession:
    """The session that kopf would make from its credentials, with intercepted answers."""
    session = session_for(
        watchdog,
        on_object=on_object,
        on_list=on_list,
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
    )
    return kopf.AiohttpSession(
        server=info.server, default_namespace=info.default_namespace, aiohttp_session=session
    )


class _NoDifferences(kopf.DiffBaseStorage):  # type: ignore[misc]  # what mypy reads of kopf: nothing
    """Stores no last-seen state of objects: no handler asks what has changed.

    Kopf makes several deep copies of every object of every event for it, which took more than half
    of the processor time of bringing a job up.
    """

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        """An empty state."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """No state: none is stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def _kopf_settings() -> kopf.OperatorSettings:
    """No events, no scans of the cluster, no copies; children are selected by our label."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # else it lists the CRDs and namespaces of the cluster
    settings.watching.chunk_size = 500
    settings.persistence.diffbase_storage = _NoDifferences()
    for kind in (*OWN_CHILDREN, kinds.PYTORCH_JOB, kinds.WORKLOAD):
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = names.JOB_LABEL
    return settings
