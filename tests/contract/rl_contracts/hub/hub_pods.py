"""Pods that import models of a fake hub, for the tests of the hub."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.errors import RefusedError
from rl_contracts.hub.model_import import ModelImporter
from rl_contracts.hub.models import HubModels
from rl_contracts.spec.data import ModelSource
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.model_folder import BaseLocations, ModelFolder
from tests.network.hub import REPO, FakeHub, commit, files_in

URI = f"hf://{REPO}"
OLD, NEW = commit("old"), commit("new")
RUN = "11111111-2222"
TOKEN = "hf_verysecret"


@dataclass
class Reporter:
    """Records the phases that a pod reports."""

    phases: list[str] = field(default_factory=list)
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Actions by the beginning of the phase that triggers them."""

    def say(self, phase: str) -> None:
        self.phases.append(phase)
        for start, act in self.at.items():
            if phase.startswith(start):
                act()

    def check(self) -> None:
        pass


@dataclass
class Pods:
    """Makes pods of one run."""

    stores: Stores
    hub: FakeHub
    folder: Path

    def pod(self, name: str = "a", *, run: str = RUN, **options: Any) -> ModelImporter:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        token, trusted_by = options.pop("token_file", None), options.pop("trusted_by", None)
        values: dict[str, Any] = {"progress": Reporter(), "wait_seconds": 60.0} | options
        hub = HubModels(self.hub.url, token_file=token, trusted_by=trusted_by, patience_seconds=3)
        return ModelImporter(
            stores=self.stores, hub=hub, run=run, holder=name, folder=folder, **values
        )

    def refusal(self, pod: ModelImporter, uri: str = URI, **source: str) -> str:
        with pytest.raises(RefusedError) as refused:
            pod.base(ModelSource(uri=uri, **source))
        refusal = refused.value.refusal
        assert refusal.remedy
        assert TOKEN not in str(refused.value)
        subject = f"{refusal.field} = {refusal.value}"
        return f"{subject} {refusal.reason}: {refusal.message} {refusal.remedy}"


def content(stores: Stores, places: BaseLocations, folder: Path) -> dict[str, bytes]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    ModelFolder(stores.objects, places.model).download(folder)
    return files_in(folder)


def loadable(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not name.endswith((".md", ".py"))}
