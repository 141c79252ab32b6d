"""A hub endpoint and the token that is sent to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from huggingface_hub import HfApi, hf_hub_download

from rl_contracts.errors import StoreUnavailableError
from rl_contracts.hub.calls import PATIENCE_SECONDS, STORE, TIMEOUT_SECONDS, ask
from rl_contracts.hub.credential import HubCredential

T = TypeVar("T")


class HubEndpoint:
    """An endpoint and its token; the token is sent only to this endpoint."""

    def __init__(
        self,
        endpoint: str,
        *,
        token_file: Path | None,
        trusted_by: str | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Create a client; nothing is sent before the first call.

        Args:
            endpoint: base URL.
            token_file: as of ``HubCredential``.
            trusted_by: as of ``HubCredential``.
            patience_seconds: how long a call is retried while the endpoint does not answer.
        """
        self.endpoint = endpoint.rstrip("/")
        self._credential = HubCredential(endpoint, token_file=token_file, trusted_by=trusted_by)
        self._patience = patience_seconds

    def _api(self) -> HfApi:
        """A client with the present token, which may have to be exchanged: within ``_ask``."""
        return HfApi(endpoint=self.endpoint, token=self._credential.token())

    def _ask(self, doing: str, call: Callable[[], T]) -> T:
        return ask(self.endpoint, doing, call, patience_seconds=self._patience)

    def _file(
        self, repo: str, name: str, *, kind: Literal["model", "dataset"], commit: str, folder: Path
    ) -> Path:
        """Download a file of a commit; continues after a broken connection."""
        doing = f"reading {name} of {repo}"

        def fetch() -> str:
            try:
                return hf_hub_download(
                    repo,
                    name,
                    repo_type=kind,
                    revision=commit,
                    endpoint=self.endpoint,
                    token=self._credential.token(),
                    local_dir=folder,
                    etag_timeout=TIMEOUT_SECONDS,
                )
            except RuntimeError as error:  # the hub's chunked storage raises nothing more specific
                cause = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                raise StoreUnavailableError(store=STORE, doing=doing, cause=cause) from error

        return Path(os.fspath(self._ask(doing, fetch)))
