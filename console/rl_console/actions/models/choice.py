"""Which model of a job is meant, and what pods need to work with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_console.cluster.kube import Cluster
from rl_console.errors import NotFoundError, UsageError
from rl_console.jobs import JobObject, stores_secret
from rl_contracts.spec.resources import API_VERSION, GROUP
from rl_contracts.spec.status import ImagesStatus

OF_JOB = f"{GROUP}/model-of"
"""Label of what is made for a model of a job; the operator does not watch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A model of a job."""

    job: JobObject
    spec: Mapping[str, Any]
    """Of the job, as the API server has it."""
    version: int
    """A published version; 0: the final model at ``uri``."""
    uri: str = ""

    @classmethod
    def of(cls, cluster: Cluster, namespace: str, name: str, version: int | None) -> Choice:
        """The version that is named, else the final model, else the newest version.

        Raises:
            NotFoundError: there is no such job, or it has no model yet.
        """
        raw = cluster.raw_job(namespace, name)
        job = JobObject.parse(raw)
        if version is not None:
            return cls(job=job, spec=raw["spec"], version=version)
        if job.status.final_model:
            return cls(job=job, spec=raw["spec"], version=0, uri=job.status.final_model)
        newest = job.status.weights.version
        if not newest:
            raise NotFoundError(
                doing=f"looking for a model of {namespace}/{name}",
                remedy="The job has published no version yet: "
                f"`kubectl rl status {name} {cluster.options(namespace)}` says how far it is",
            )
        return cls(job=job, spec=raw["spec"], version=newest)

    @property
    def label(self) -> str:
        """``final``, or the version's number."""
        return str(self.version) if self.version else "final"

    @property
    def described(self) -> str:
        """The model for a person."""
        return f"version {self.version}" if self.version else "the final model"

    @property
    def arguments(self) -> list[str]:
        """That name the model to ``rl_sampler.models``."""
        return ["--version", str(self.version)] if self.version else ["--uri", self.uri]

    @property
    def secret(self) -> str:
        """Name of the Secret of stores."""
        return stores_secret(self.spec)

    @property
    def spec_text(self) -> str:
        """The spec as JSON, for a file in the pods."""
        return json.dumps(self.spec, separators=(",", ":"))

    @property
    def owner(self) -> dict[str, Any]:
        """Reference to the job, with which what is made for it is deleted."""
        return {
            "apiVersion": API_VERSION,
            "kind": "RLJob",
            "name": self.job.name,
            "uid": self.job.uid,
        }

    @property
    def labels(self) -> dict[str, str]:
        """Of everything that is made for the model."""
        return {"app.kubernetes.io/managed-by": "kubectl-rl", OF_JOB: self.job.name}

    def group(self, name: str = "") -> Mapping[str, Any]:
        """Template of a sampler group; empty where the job has none of its own.

        Raises:
            UsageError: there is no such group.
        """
        groups = {
            each["name"]: each.get("template") or {} for each in self.spec.get("samplers") or []
        }
        if name and name not in groups:
            known = ", ".join(groups) or "none"
            raise UsageError(
                f"RLJob {self.job.name} has no group {name!r}", remedy=f"It has {known}"
            )
        return groups[name] if name else next(iter(groups.values()), {})

    def images(
        self, *, sampler: str = "", engine: str | None = "", group: str = ""
    ) -> ImagesStatus:
        """Images of the pods: those that are named, the manifest's, or the installation's.

        Args:
            sampler: named by the user; empty: not.
            engine: the same; None: the pod has no engine.
            group: whose template may name images.

        Raises:
            UsageError: none is known.
        """
        template, known = self.group(group), self.job.status.images
        chosen = {"sampler": sampler or template.get("image") or (known.sampler if known else "")}
        if engine is not None:
            own = (template.get("engine") or {}).get("image")
            chosen["engine"] = engine or own or (known.engine if known else "")
        options = {"sampler": "--image", "engine": "--engine-image"}
        for name, image in chosen.items():
            if not image:
                raise UsageError(
                    f"the status of {self.job.name} names no {name} image: an earlier release "
                    "of the operator ran it",
                    remedy=f"Name one with {options[name]}",
                )
        base = known or ImagesStatus(sampler="", engine="")
        return base.model_copy(update=chosen)
