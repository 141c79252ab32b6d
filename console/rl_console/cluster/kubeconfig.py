"""What a context of a kubeconfig leads to: the server, the user and the namespace.

The client library reads the file, but neither whom the user impersonates nor the cluster's proxy.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.config.kube_config import KubeConfigMerger

from rl_console.cluster.credentials import Loader
from rl_console.cluster.rest import Impersonating, Renewing
from rl_console.errors import UsageError
from rl_contracts.addresses import proxy_headers, proxy_of
from rl_contracts.kubeconfig import current_context

LEGAL = "!#$&'*+-.^_`|~"
"""Besides letters and digits, in the name of a header; others are escaped, as kubectl does."""
HEADER = ("apiVersion", "kind")
"""What a kubeconfig without content may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a context leads to."""

    library: Any
    """A client with the user's credentials."""
    namespace: str
    impersonates: bool
    """The user acts for another one, whom each request names."""


def without_retries() -> Any:
    """Settings of the library; with its retries a dead server would take four time limits."""
    settings = client.Configuration()
    settings.retries = urllib3.Retry(total=0)
    return settings


def use_proxy(settings: Any, named: str = "") -> None:
    """Use the proxy that is named, else that of the environment.

    The library uses HTTP_PROXY for HTTPS, and neither NO_PROXY nor a proxy's user and password.

    Raises:
        UsageError: the proxy is of another kind than HTTP's.
    """
    settings.proxy = named or proxy_of(settings.host, os.environ)
    if not settings.proxy:
        return
    if not settings.proxy.lower().startswith(("http://", "https://")):
        raise UsageError(
            "the API server's proxy cannot be used: its URL must begin with http:// or https://, "
            "and SOCKS is not supported",
            remedy="Change proxy-url in the kubeconfig or HTTPS_PROXY, or name the API server in "
            "NO_PROXY",
        )
    settings.proxy_headers = proxy_headers(settings.proxy)


def default_files() -> list[Path]:
    """Kubeconfigs that are used where none is named."""
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [Path(file) for file in named.split(os.pathsep) if file]


def is_default_empty() -> bool:
    """Whether no default file has content; a damaged one has."""
    files = [file.expanduser() for file in default_files()]
    try:
        return not any(
            _has_content(yaml.safe_load(file.read_bytes())) if file.is_file() else file.exists()
            for file in files
        )
    except (OSError, yaml.YAMLError):
        return False


def _has_content(read: Any) -> bool:
    """Whether a file says anything; tools leave empty lists and no current context behind."""
    if not isinstance(read, Mapping):
        return bool(read)
    return any(value for key, value in read.items() if key not in HEADER)


def read(file: Path | None, *, context: str | None) -> Chosen:
    """Read a context, without a request.

    Args:
        file: None: kubectl's default.
        context: None: the current one.

    Raises:
        UsageError: the kubeconfig cannot be used.
        NotLoggedInError: the user's credential plugin gave no credential.
    """
    files = [file] if file else default_files()
    try:
        return _chosen(files, context)
    except (config.ConfigException, OSError, urllib3.exceptions.HTTPError) as error:
        cause = str(error)
    except yaml.YAMLError as error:
        cause = f"it is not YAML: {error}"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        cause = f"a part of it has another form than a kubeconfig's: {error}"
    raise UsageError(
        f"the kubeconfig {os.pathsep.join(map(str, files))} cannot be used: "
        f"{' '.join(cause.split())}",
        remedy="Name the file with --kubeconfig or $KUBECONFIG, and the context with "
        "--context; `kubectl config get-contexts` lists them",
    )


class _Merger(KubeConfigMerger):  # type: ignore[misc]
    """Reads files as kubectl does: one that is empty is ignored, and none is split at a colon."""

    def _load_config_from_file_path(self, files: Sequence[Path]) -> None:
        for file in files:
            if file.exists():
                with contextlib.suppress(config.ConfigException):  # it is empty
                    self.load_config(str(file))
                    self.paths.append(str(file))
        self.config_saved = copy.deepcopy(self.config_files)


def _merged(files: Sequence[Path]) -> KubeConfigMerger:
    expanded = [file.expanduser() for file in files]
    merged = _Merger(expanded)
    if merged.config is None:
        is_there = any(file.exists() for file in expanded)
        raise config.ConfigException("it is empty" if is_there else "there is no such file")
    for node in merged.config.value["users"]:
        node.name = f"{node.path}/{node.value['name']}"  # in errors; the library's has every secret
        node.value = {**node.value, "user": node.value.get("user") or {}}  # `user:` without content
    return merged


def _chosen(files: Sequence[Path], context: str | None) -> Chosen:
    merged = _merged(files)
    active = context or current_context(merged.config_files[path] for path in merged.paths)
    if not active:
        raise config.ConfigException("it names no current context")
    loader = Loader(
        merged.config,
        active_context=active,
        config_base_path=None,  # paths are relative to the file that has them
        config_persister=merged.save_changes,
    )
    wanted = loader.current_context["context"]
    user = _named(merged.config, "user", wanted.get("user"))
    settings = without_retries()
    loader.load_and_set(settings)
    use_proxy(settings, _named(merged.config, "cluster", wanted["cluster"]).get("proxy-url") or "")
    library = client.ApiClient(settings)
    headers = impersonation(user)
    if loader.uses_plugin:
        library.rest_client = Renewing(settings, headers, loader)
    elif headers:
        library.rest_client = Impersonating(settings, headers)
    return Chosen(
        library=library,
        namespace=wanted.get("namespace") or "default",
        impersonates=bool(headers),
    )


def _named(merged: Any, kind: str, name: str | None) -> Mapping[str, Any]:
    """A user or a cluster by its name; empty where none is named."""
    return merged[f"{kind}s"].get_with_name(name)[kind].value if name else {}


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
