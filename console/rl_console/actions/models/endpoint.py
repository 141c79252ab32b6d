"""The objects of an endpoint: a Deployment with engine and front, a Service, a NetworkPolicy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rl_console.actions.models.choice import Choice
from rl_console.actions.models.placement import placed
from rl_console.actions.models.pod import (
    ENGINE_PORT,
    LISTEN_PORT,
    SECURITY,
    TMP,
    WEIGHTS_FOLDER,
    Manifest,
    container,
    pulled,
    template,
)
from rl_console.errors import UsageError
from rl_contracts import env
from rl_contracts.engine_server import PROGRAM, server_arguments
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import ImagesStatus
from rl_contracts.spec.workers import SamplerTemplate

KEY_FOLDER = "/run/rl-engine"
API_KEY_FOLDER, API_KEY, API_KEY_VOLUME = "/etc/rl/api-key", "api-key", "rl-endpoint-key"
PORT = 80
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
NAME_LABEL = "app.kubernetes.io/name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model that is served under a name."""

    choice: Choice
    images: ImagesStatus
    name: str
    replicas: int = 1
    group: str = ""
    """Whose engine options it takes; empty: the first."""
    api_key_secret: str = ""
    """Secret with the key ``api-key``; empty: no key is asked for."""
    owned: bool = True
    """It is deleted with the job."""

    @classmethod
    def changed(
        cls,
        present: Mapping[str, Any] | None,
        *,
        replicas: int | None,
        api_key_secret: str | None,
        owned: bool | None,
        **others: Any,
    ) -> Endpoint:
        """The endpoint that a repeated command makes: options that are None stay as they were.

        Args:
            present: Deployment of the earlier endpoint; None: there is none.
            replicas: number of pods.
            api_key_secret: empty: no key.
            owned: it is deleted with the job.
            others: fields that do not depend on the earlier endpoint.
        """
        spec = (present or {}).get("spec") or {}
        if replicas is None:
            replicas = int(spec.get("replicas") or 1)
        if api_key_secret is None:
            api_key_secret = _key_of(spec)
        if owned is None:
            owned = present is None or bool(present["metadata"].get("ownerReferences"))
        return cls(replicas=replicas, api_key_secret=api_key_secret, owned=owned, **others)

    def manifests(self) -> list[Manifest]:
        """The objects, in the order in which they are made.

        Raises:
            UsageError: the name is none of a Service, or the job has no engine of its own or is of
                another release.
        """
        if not SERVICE_NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is no name of a Service",
                remedy="Use a letter and up to 62 more lower-case letters, digits and dashes",
            )
        return [self._network_policy(), self._service(), self._deployment()]

    @property
    def labels(self) -> dict[str, str]:
        """That select its pods."""
        return {**self.choice.labels, NAME_LABEL: self.name}

    def _metadata(self) -> Manifest:
        owners = {"ownerReferences": [self.choice.owner]} if self.owned else {}
        namespace = self.choice.job.namespace
        return {"name": self.name, "namespace": namespace, "labels": self.labels, **owners}

    def _network_policy(self) -> Manifest:
        """Pods of the namespace alone may ask; a port-forward needs no entry."""
        port = {"port": LISTEN_PORT, "protocol": "TCP"}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._metadata(),
            "spec": {
                "podSelector": {"matchLabels": self.labels},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}], "ports": [port]}],
            },
        }

    def _service(self) -> Manifest:
        port = {"name": "http", "port": PORT, "targetPort": LISTEN_PORT, "protocol": "TCP"}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(),
            "spec": {"selector": self.labels, "ports": [port]},
        }

    def _deployment(self) -> Manifest:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self._metadata(),
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": self.labels},
                # Another pod beside the old one may find no device.
                "strategy": {"type": "Recreate"},
                "template": self._pod(),
            },
        }

    def _pod(self) -> Manifest:
        spec = self._spec()
        group, placement = self._template(spec)
        pod = template(
            self.choice,
            self.images,
            initContainers=[self._stage()],
            containers=[self._engine(spec, placement), self._front()],
        )
        pod["metadata"]["labels"] = self.labels
        pod["spec"]["volumes"] += [
            {"name": "engine-key", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "engine-tmp", "emptyDir": {"sizeLimit": "64Gi"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}},
            *self._api_key_volume(),
        ]
        return placed(pod, self.choice.group(group))

    def _spec(self) -> RLJobSpec:
        try:
            return RLJobSpec.model_validate(self.choice.spec)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, ("spec", *first["loc"])))
            raise UsageError(
                f"{place} of RLJob {self.choice.job.name} cannot be read: {first['msg']}",
                remedy="This command is of another release than the operator: install its own",
            ) from error

    def _template(self, spec: RLJobSpec) -> tuple[str, SamplerTemplate]:
        """Name and template of the group whose options it takes."""
        own = [each for each in spec.samplers if each.pool_ref is None]
        chosen = [each for each in own if self.group in ("", each.name)]
        if chosen:
            return chosen[0].name, chosen[0].template
        raise UsageError(
            f"RLJob {self.choice.job.name} has no group of samplers of its own"
            + (f" that is named {self.group!r}" if self.group else ""),
            remedy="An endpoint takes its engine's options from there: choose one with --group, or "
            "promote the model and serve it with a manifest of yours",
        )

    def _stage(self) -> Manifest:
        made = container("stage", self.choice, self.images, ["stage", *self.choice.arguments])
        return _knowing_key(made, read_only=False)

    def _front(self) -> Manifest:
        arguments = ["endpoint", "--name", self.choice.label]
        made = _knowing_key(container("endpoint", self.choice, self.images, arguments))
        ready = {"httpGet": {"path": "/ready", "port": LISTEN_PORT}, "periodSeconds": 2}
        made |= {"ports": [{"name": "http", "containerPort": LISTEN_PORT}], "readinessProbe": ready}
        # What others connect to has no credentials of the stores.
        made["volumeMounts"] = [each for each in made["volumeMounts"] if each["name"] != "stores"]
        if self.api_key_secret:
            made["args"] += ["--key-file", f"{API_KEY_FOLDER}/{API_KEY}"]
            mount = {"name": API_KEY_VOLUME, "mountPath": API_KEY_FOLDER, "readOnly": True}
            made["volumeMounts"] = [*made["volumeMounts"], mount]
        return made

    def _api_key_volume(self) -> list[Manifest]:
        if not self.api_key_secret:
            return []
        secret = {"secretName": self.api_key_secret, "defaultMode": 0o440}
        return [{"name": API_KEY_VOLUME, "secret": secret}]

    def _engine(self, spec: RLJobSpec, placement: SamplerTemplate) -> Manifest:
        engine = placement.engine
        fixed = {"HOME": TMP}
        if not any(variable.name == "USER" for variable in engine.env):
            fixed["USER"] = "engine"  # torch asks for it, and in SGLang's image the uid has none
        given = [each.to_kubernetes() for each in engine.env if each.name not in fixed]
        sources = {"envFrom": [dict(each) for each in engine.env_from]} if engine.env_from else {}
        resources = spec.trainer.resources if spec.colocated else placement.resources
        return {
            "name": "engine",
            "image": self.images.engine,
            **pulled(self.images),
            "command": ["python3", "-c", PROGRAM],
            "args": [
                "--config",
                f"{KEY_FOLDER}/engine.yaml",
                *server_arguments(
                    engine,
                    folder=f"{WEIGHTS_FOLDER}/model",
                    port=ENGINE_PORT,
                    precision=spec.training.precision,
                ),
            ],
            "env": [*given, *({"name": key, "value": value} for key, value in fixed.items())],
            **sources,
            "resources": resources.to_kubernetes(),
            "securityContext": SECURITY,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [
                {"name": "weights", "mountPath": WEIGHTS_FOLDER, "readOnly": True},
                {"name": "engine-key", "mountPath": KEY_FOLDER, "readOnly": True},
                {"name": "engine-tmp", "mountPath": TMP},
                {"name": "shared-memory", "mountPath": "/dev/shm"},
            ],
        }


def _key_of(deployment: Mapping[str, Any]) -> str:
    """Secret of the key that an endpoint asks for; empty: none.

    Its volume is that at the key's folder: earlier releases gave the volume another name.
    """
    pod = (deployment.get("template") or {}).get("spec") or {}
    names = {
        mount["name"]
        for container in pod.get("containers") or []
        for mount in container.get("volumeMounts") or []
        if mount["mountPath"] == API_KEY_FOLDER
    }
    volumes = (each for each in pod.get("volumes") or [] if each["name"] in names)
    return next((str(each["secret"]["secretName"]) for each in volumes if "secret" in each), "")


def _knowing_key(container: Manifest, *, read_only: bool = True) -> Manifest:
    mount = {"name": "engine-key", "mountPath": KEY_FOLDER, "readOnly": read_only}
    return container | {
        "env": [*container["env"], {"name": env.ENGINE_KEY_FOLDER, "value": KEY_FOLDER}],
        "volumeMounts": [*container["volumeMounts"], mount],
    }
