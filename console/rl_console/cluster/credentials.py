"""Reads the credentials of a kubeconfig's user as kubectl does; the client library differs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes.config.kube_config import (
    ConfigNode,
    FileOrData,
    KubeConfigLoader,
)

from rl_console.cluster.plugin import credential

USER_FILES = ("client-certificate", "client-key")


class Loader(KubeConfigLoader):  # type: ignore[misc]
    """Reads the credentials of a user as kubectl does."""

    _user: Any
    token = ""
    """The last one."""
    expiry: datetime | None = None
    """When the token runs out."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._renewal = threading.Lock()
        super().__init__(*given, **named)

    def _set_config(self, settings: Any) -> None:
        super()._set_config(settings)
        if settings.refresh_api_key_hook:
            settings.refresh_api_key_hook = self._renew

    def _renew(self, settings: Any) -> None:
        """Load the credentials again where they have run out; one thread does, others wait."""
        with self._renewal:
            if self.expiry and self.expiry <= datetime.now(UTC):
                self._load_authentication()
            self._set_config(settings)

    def _load_authentication(self) -> None:
        """Load no credentials for a server that is reached without TLS, as kubectl sends none."""
        if str(self._cluster.safe_get("server")).lower().startswith("https://"):
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
        if not self._user.safe_get("exec"):
            return None
        base = self._get_base_path(self._cluster.path)
        authorities = FileOrData(self._cluster, "certificate-authority", file_base_path=base)
        given = credential(self._user["exec"], self._cluster, authorities=authorities.as_data())
        if given.token:
            self.token = f"Bearer {given.token}"
        if given.certificate:
            self.cert_file, self.key_file = map(_file, (given.certificate, given.key))
        self.expiry = given.expiry
        return True

    def _load_user_token(self) -> Any:
        """Prefer the token of ``tokenFile`` to ``token``, which counts while there is no file."""
        if not self._user.safe_get("tokenFile"):
            return super()._load_user_token()
        last = self.token.removeprefix("Bearer ") or self._user.safe_get("token")
        try:
            read = Path(self._get_base_path(self._user.path), self._user["tokenFile"]).read_text()
        except OSError:  # a file that is gone for a moment, while it is replaced
            if not last:
                raise
            read = ""
        token = read.strip() or last
        if not token:
            return None
        self.token = f"Bearer {token}"
        self.expiry = datetime.now(UTC)  # the file is read again: its token may be renewed
        return True


def _file(text: str) -> str:
    """A file with a text; it is removed when the process ends."""
    held = {"text": text}
    path: str = FileOrData(held, None, data_key_name="text", base64_file_content=False).as_file()
    return path
