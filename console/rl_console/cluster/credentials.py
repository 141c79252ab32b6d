"""Reads the credentials of a kubeconfig's user as kubectl does; the client library differs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader

USER_FILES = ("client-certificate", "client-key")


class Loader(KubeConfigLoader):  # type: ignore[misc]
    """Reads the credentials of a user as kubectl does."""

    _user: Any
    token = ""
    """The last one."""

    @property
    def is_secure(self) -> bool:
        """Whether the server is reached by TLS; kubectl sends no credentials without it."""
        return str(self._cluster.safe_get("server")).lower().startswith("https://")

    def _load_authentication(self) -> None:
        if self.is_secure:
            super()._load_authentication()

    def _load_cluster_info(self) -> None:
        """Look for the user's certificate beside the user's file, not beside the cluster's."""
        user = self._user
        if user and user.path:
            folder = Path(user.path).absolute().parent
            own = {key: str(folder / user.value[key]) for key in USER_FILES if user.safe_get(key)}
            self._user = ConfigNode(user.name, {**user.value, **own}, user.path)
        super()._load_cluster_info()
        self._user = user

    def _load_from_exec_plugin(self) -> Any:
        """Look for the plugin beside the user's file, not beside the cluster's."""
        user, plugin = self._user, self._user.safe_get("exec")
        if user.path and plugin and "/" in (plugin.get("command") or ""):
            command = Path(user.path).absolute().parent / plugin["command"]
            own = {**user.value, "exec": {**plugin, "command": str(command)}}
            self._user = ConfigNode(user.name, own, user.path)
        loaded = super()._load_from_exec_plugin()
        self._user = user
        return loaded

    def _load_user_token(self) -> Any:
        try:
            loaded = super()._load_user_token()
        except OSError:  # a file that is gone for a moment, while it is replaced
            if not self.token:
                raise
            loaded = True
        if loaded and not self._user.safe_get("token"):
            self.expiry = datetime.now(UTC)  # the file is read again: its token may be renewed
        return loaded

    def _set_config(self, settings: Any) -> None:
        super()._set_config(settings)
        if token := settings.api_key.get("authorization"):
            settings.api_key["authorization"] = token.strip()  # a file ends with a line break
