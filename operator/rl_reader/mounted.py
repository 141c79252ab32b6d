"""The stores that the mounted Secret names: read again whenever its files have changed."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.stores.clients import in_clear
from rl_contracts.stores.clients.deployment import Warned
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores

PATIENCE_SECONDS = 2.0
OBJECT_BYTES = 32 << 20
"""Of an object that is read into memory. Parsed it takes some three times as much, and a reader has
256 MiB."""
MOST_BYTES = 1 << 20
"""Kubernetes stores no larger Secret."""
HIDDEN = "[hidden]"
SECRETS = ("mongoUri", "mongoClientCertificate", "s3AccessKey", "s3SecretKey")
PASSWORD = re.compile(r"://[^:/@]*:([^@/]+)@")
SHORTEST = 6
"""A shorter value is not replaced in texts: it is in many words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The content of the Secret, and what follows from it."""

    version: str
    stores: Stores | None = None
    bucket: str = ""
    refusal: Refusal | None = None
    hidden: tuple[str, ...] = ()
    """Values that no answer may show."""
    store_warned: Warned | None = None
    """What to know about the address of the document store."""
    bucket_warned: Warned | None = None

    def without_secrets(self, text: str) -> str:
        """The text with every secret value replaced."""
        for value in self.hidden:
            text = text.replace(value, HIDDEN)
        return text


class Folder:
    """The folder in which the kubelet keeps the Secret. For any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        namespace: str,
        secret: str,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Read nothing yet.

        Args:
            folder: where the Secret is mounted.
            namespace: of the Secret, for messages.
            secret: name of the Secret, for messages.
            patience_seconds: how long one command of the stores' clients is retried.
        """
        self._folder, self._namespace, self._secret = folder, namespace, secret
        self._patience = patience_seconds
        self._process, self._number = secrets.token_hex(4), 0
        self._content = b""
        self._current: Mounted | None = None
        self._last: Mounted | None = None
        self._lock = threading.Lock()

    @property
    def namespace(self) -> str:
        """Of the Secret."""
        return self._namespace

    def current(self) -> Mounted:
        """The stores as the Secret names them now."""
        with self._lock:
            values = self._values()
            content = hashlib.sha256(repr(sorted(values.items())).encode()).digest()
            if self._current is None or content != self._content:
                self._number += 1
                self._content = content
                self._current = self._mounted(values, f"{self._process}-{self._number}")
                self._last = self._current if self._current.stores else self._last
            return self._current

    def last(self) -> Mounted:
        """The stores as a valid Secret named them last.

        A namespace that is deleted loses its Secret first; data of its runs can still be deleted.
        """
        current = self.current()
        return current if current.stores or self._last is None else self._last

    def reconnect(self) -> None:
        """Use new connections from now on: a request hangs in the present ones."""
        with self._lock:
            self._content = b""

    def _values(self) -> dict[str, str]:
        values = {}
        for path in sorted(self._folder.glob("[!.]*")):
            if path.is_file() and path.stat().st_size <= MOST_BYTES:
                values[path.name] = path.read_bytes().decode(errors="replace").strip()
        return values

    def _mounted(self, values: dict[str, str], version: str) -> Mounted:
        if not values:
            return Mounted(version=version, refusal=self._missing())
        hidden = _hidden(values)
        try:
            settings = StoreSettings.from_mapping(values)
            stores = Stores.connect(
                settings, patience_seconds=self._patience, memory_bytes=OBJECT_BYTES
            )
        except RefusedError as error:
            return Mounted(version=version, refusal=error.refusal, hidden=hidden)
        unused = weakref.finalize(stores, stores.mongo.close)
        unused.atexit = False  # the process ends without waiting for a server
        return Mounted(
            version=version,
            stores=stores,
            bucket=settings.s3_bucket,
            hidden=hidden,
            store_warned=in_clear.state_store(settings),
            bucket_warned=in_clear.bucket(settings),
        )

    def _missing(self) -> Refusal:
        return Refusal(
            field="spec.storage.secretName",
            value=self._secret,
            reason="StoresSecretMissing",
            message=f"Namespace {self._namespace} has no such Secret.",
            remedy="Create it; or, with the chart's stores.embedded.enabled, add the namespace to "
            "stores.namespaces.",
        )


def _hidden(values: dict[str, str]) -> tuple[str, ...]:
    lines = [line for key in SECRETS for line in values.get(key, "").splitlines()]
    lines += PASSWORD.findall(values.get("mongoUri", ""))
    return tuple(line for line in lines if len(line) >= SHORTEST)
