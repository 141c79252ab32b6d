"""What a context of a kubeconfig leads to: the server, the user and the namespace.

The client library reads the file, but neither whom the user impersonates nor the cluster's proxy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
from kubernetes import client, config
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from rl_console.errors import UsageError
from rl_contracts.addresses import proxy_of

LEGAL = "!#$&'*+-.^_`|~"
"""Besides letters and digits, in the name of a header; others are escaped, as kubectl does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a context leads to."""

    settings: Any
    """The library's, without retries."""
    namespace: str
    impersonation: urllib3.HTTPHeaderDict
    """Headers that name whom the user impersonates; empty: nobody."""

    def library(self) -> Any:
        """A client that sends these headers with each request."""
        made = client.ApiClient(self.settings)
        if self.impersonation:
            made.rest_client = _Impersonating(self.settings, self.impersonation)
        return made


class _Impersonating(RESTClientObject):  # type: ignore[misc]
    """Adds headers to each request: the library's default headers cannot have one name twice."""

    def __init__(self, settings: Any, headers: urllib3.HTTPHeaderDict) -> None:
        super().__init__(settings)
        self._headers = headers

    def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        sent = urllib3.HTTPHeaderDict(headers or {})
        sent.extend(self._headers)
        return super().request(method, url, query_params, sent, **options)


def without_retries() -> Any:
    """Settings of the library; with its retries a dead server would take four time limits."""
    settings = client.Configuration()
    settings.retries = urllib3.Retry(total=0)
    return settings


def use_proxy(settings: Any, named: str = "") -> None:
    """Use the proxy that is named, else that of the environment.

    The library uses HTTP_PROXY for HTTPS, and never NO_PROXY.
    """
    if named:
        settings.proxy, settings.no_proxy = named, None
    else:
        settings.proxy, settings.no_proxy = proxy_of(settings.host, os.environ)


def read(file: Path | None, *, context: str | None) -> Chosen:
    """Read a context, without a request.

    Args:
        file: None: kubectl's default.
        context: None: the current one.

    Raises:
        UsageError: the kubeconfig cannot be used.
    """
    files = str(file) if file else config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        return _chosen(files, context)
    except config.ConfigException as error:
        raise UsageError(
            f"the kubeconfig cannot be used: {error}",
            remedy="Name the file with --kubeconfig or $KUBECONFIG, and the context with "
            "--context; `kubectl config get-contexts` lists them",
        ) from error


def _chosen(files: str, context: str | None) -> Chosen:
    merged = KubeConfigMerger(files)
    if merged.config is None:
        raise config.ConfigException("Invalid kube-config file. No configuration found.")
    loader = KubeConfigLoader(
        merged.config,
        active_context=context,
        config_base_path=None,  # paths are relative to the file that has them
        config_persister=merged.save_changes,
    )
    settings = without_retries()
    loader.load_and_set(settings)
    wanted = loader.current_context["context"]
    user = _named(merged.config, "user", wanted.get("user"))
    cluster = _named(merged.config, "cluster", wanted["cluster"])
    use_proxy(settings, cluster.get("proxy-url") or "")
    return Chosen(
        settings=settings,
        namespace=wanted.get("namespace", "default"),
        impersonation=impersonation(user),
    )


def _named(merged: Any, kind: str, name: str | None) -> Mapping[str, Any]:
    """A user or a cluster by its name; empty where there is none."""
    found = merged[f"{kind}s"].get_with_name(name, safe=True) if name else None
    return {} if found is None else found[kind].value


def impersonation(user: Mapping[str, Any]) -> urllib3.HTTPHeaderDict:
    """Headers that name whom a user of a kubeconfig impersonates.

    Raises:
        UsageError: a uid, groups or extra values are given without a user, as kubectl refuses it.
    """
    name, uid = user.get("as"), user.get("as-uid")
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not name and (uid or groups or extra):
        raise UsageError(
            "the kubeconfig has as-uid, as-groups or as-user-extra without `as`",
            remedy="Name the user to impersonate with `as`",
        )
    headers = urllib3.HTTPHeaderDict()
    single = (("User", name), ("Uid", uid), *(("Group", group) for group in groups))
    several = (
        (f"Extra-{quote(key, safe=LEGAL)}", value)
        for key, values in extra.items()
        for value in values
    )
    for part, value in (*single, *several):
        if value:
            headers.add(f"Impersonate-{part}", str(value).encode().decode("latin-1"))
    return headers
