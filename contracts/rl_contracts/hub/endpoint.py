"""One hub and whom it takes us for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from huggingface_hub import HfApi, hf_hub_download

from rl_contracts.errors import StoreUnavailableError
from rl_contracts.hub.calls import PATIENCE_SECONDS, STORE, TIMEOUT_SECONDS, ask

T = TypeVar("T")


class HubEndpoint:
    """One endpoint and one token; the token is shown to that endpoint alone."""

    def __init__(
        self, endpoint: str, *, token_file: Path | None, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Nothing is asked before the first call.

        Args:
            endpoint: base URL.
            token_file: holds the token; None: no token is sent, not even one that lies around.
            patience_seconds: how long a call is repeated while the endpoint does not answer.
        """
        self.endpoint = endpoint.rstrip("/")
        self._token: str | bool = token_file.read_text().strip() if token_file else False
        self._api = HfApi(endpoint=self.endpoint, token=self._token)
        self._patience = patience_seconds

    def _ask(self, doing: str, call: Callable[[], T]) -> T:
        return ask(self.endpoint, doing, call, patience_seconds=self._patience)

    def _file(
        self, repo: str, name: str, *, kind: Literal["model", "dataset"], commit: str, folder: Path
    ) -> Path:
        """Fetch one file of a commit, going on where a connection was cut."""
        doing = f"reading {name} of {repo}"

        def fetch() -> str:
            try:
                return hf_hub_download(
                    repo,
                    name,
                    repo_type=kind,
                    revision=commit,
                    endpoint=self.endpoint,
                    token=self._token,
                    local_dir=folder,
                    etag_timeout=TIMEOUT_SECONDS,
                )
            except RuntimeError as error:  # the hub's chunked storage has no errors of its own
                cause = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                raise StoreUnavailableError(store=STORE, doing=doing, cause=cause) from error

        return Path(os.fspath(self._ask(doing, fetch)))
