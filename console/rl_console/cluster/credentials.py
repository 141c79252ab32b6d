"""Reads the credentials of a kubeconfig's user as kubectl does; the client library differs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader

from rl_console.cluster.plugin import credential

USER_FILES = ("client-certificate", "client-key")
BEFORE_PLUGIN = ("client-certificate", "client-certificate-data", "username")
"""Keys of a user that count before a plugin."""


class Held(NamedTuple):
    """What a user has to show a server."""

    token: str
    """With its scheme, or empty."""
    certificate: str | None
    """A file, as is the key."""
    key: str | None


class Loader(KubeConfigLoader):  # type: ignore[misc]
    """Reads the credentials of a user as kubectl does."""

    _user: Any
    token = ""
    """The last one."""
    expiry: datetime | None = None
    """When the credentials run out."""
    cert_file: str | None = None
    key_file: str | None = None
    uses_plugin = False
    held: Held
    """The last ones."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._renewal = threading.Lock()
        super().__init__(*given, **named)

    def _set_config(self, settings: Any) -> None:
        super()._set_config(settings)
        settings.refresh_api_key_hook = self.renew
        self.held = Held(self.token, self.cert_file, self.key_file)

    def renew(self, settings: Any, *, refused: Held | None = None) -> None:
        """Load the credentials again where they have run out; one thread does, others wait.

        The library calls it before each request of a user with a token or a plugin.

        Args:
            settings: of the library, to write them into.
            refused: load them again also if these are the last ones.
        """
        with self._renewal:
            is_out = self.expiry and self.expiry <= datetime.now(UTC)
            if is_out or refused == self.held:
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
        """Run the plugin of a user who has nothing else to show."""
        if not self._user.safe_get("exec") or any(map(self._user.safe_get, BEFORE_PLUGIN)):
            return None
        base = self._get_base_path(self._cluster.path)
        authorities = FileOrData(self._cluster, "certificate-authority", file_base_path=base)
        given = credential(self._user["exec"], self._cluster, authorities=authorities.as_data())
        self.token = f"Bearer {given.token}" if given.token else ""
        self.cert_file, self.key_file = map(_file, (given.certificate, given.key))
        self.expiry = given.expiry
        self.uses_plugin = True
        return True

    def _load_user_pass_token(self) -> Any:
        """Take a password that is missing for an empty one."""
        name, password = map(self._user.safe_get, ("username", "password"))
        if not name:
            return None
        login = urllib3.make_headers(basic_auth=f"{name}:{password or ''}")
        self.token = login["authorization"]
        return True

    def _load_user_token(self) -> Any:
        """Prefer the token of ``tokenFile`` to ``token``, which counts while there is no file."""
        if not self._user.safe_get("tokenFile"):
            return super()._load_user_token()
        last = self.token.removeprefix("Bearer ") or self._user.safe_get("token")
        file = Path(self._get_base_path(self._user.path), self._user["tokenFile"])
        try:
            read = file.read_text()
        except OSError:  # a file that is gone for a moment, while it is replaced
            if not last:
                raise
            read = ""
        token = read.strip() or last
        if not token:
            raise ConfigException(f"the tokenFile {file} is empty")
        self.token = f"Bearer {token}"
        self.expiry = datetime.now(UTC)  # the file is read again: its token may be renewed
        return True


def _file(text: str) -> str | None:
    """A file with a text, if there is one; it is removed when the process ends."""
    held = {"text": text}
    file = FileOrData(held, None, data_key_name="text", base64_file_content=False)
    path: str | None = file.as_file()
    return path
