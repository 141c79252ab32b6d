"""The cluster as the tests use it: kubectl as a user has it, and the stores from outside."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rl_console import tools
from rl_console.cluster.kube import Cluster
from rl_console.errors import ClusterUnavailableError, RequestRefusedError
from rl_console.jobs import JobObject
from rl_console.pods import PodView
from rl_console.stores import stores
from rl_console.tools import Tools
from rl_console.view import condition
from rl_contracts.documents.run import Run
from rl_contracts.errors import RLError
from rl_contracts.spec.status import Condition
from rl_contracts.stores.connect import Stores
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

T = TypeVar("T")
SYSTEM = "rl-system"
OPERATOR = "operator"
"""The component of the release."""


def command_line(chosen: Tools, *arguments: str) -> list[str]:
    """A command line of ``kubectl rl``."""
    return [
        sys.executable,
        "-m",
        "rl_console",
        "--kubectl",
        chosen.kubectl,
        "--helm",
        chosen.helm,
        "--kubeconfig",
        str(chosen.kubeconfig),
        *arguments,
    ]


@dataclass(frozen=True)
class Lab:
    """One namespace of the cluster."""

    cluster: Cluster
    tools: Tools
    namespace: str

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = HUNG_SECONDS) -> str:
        """Run kubectl in the namespace; RequestRefusedError holds its complaint."""
        command = self.tools.kubectl_command("--namespace", self.namespace, *arguments)
        return tools.run(command, stdin=stdin, seconds=seconds, doing=" ".join(arguments[:3]))

    def get(self, *arguments: str) -> dict[str, Any]:
        """Parsed output of ``kubectl get … -o json``."""
        parsed: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return parsed

    def apply(self, manifest: dict[str, Any]) -> str:
        """``kubectl apply`` under strict validation, kubectl's default."""
        return self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def refusal(self, manifest: dict[str, Any]) -> str:
        """What the API server says against a manifest; empty when it takes it."""
        try:
            self.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
        except RequestRefusedError as error:
            return str(error)
        return ""

    def delete(self, kind: str, *names: str, seconds: float = HUNG_SECONDS) -> None:
        """Delete objects and wait until they are gone."""
        self.kubectl(
            "delete",
            kind,
            *names,
            "--ignore-not-found",
            f"--timeout={seconds:.0f}s",
            seconds=seconds + 10,
        )

    def job(self, name: str) -> JobObject:
        """An RLJob."""
        return self.cluster.job(self.namespace, name)

    def condition(self, name: str, kind: str) -> Condition | None:
        """A condition of an RLJob."""
        return condition(self.job(name).status, kind)

    def pods(self, job: str) -> list[PodView]:
        """Pods of an RLJob, those on their way out included."""
        return [pod for pod in self.cluster.pods(self.namespace) if pod.job == job]

    def await_condition(self, name: str, kind: str, *, seconds: float = HUNG_SECONDS) -> Condition:
        """Wait until a condition of an RLJob is True."""

        def look() -> Condition | None:
            try:
                condition = self.condition(name, kind)
            except ClusterUnavailableError:  # too busy to answer in time
                return None
            return condition if condition and condition.status == "True" else None

        def seen() -> str:
            return self.job(name).status.model_dump_json(by_alias=True)

        condition = until(look, what=f"{name} to be {kind}", seconds=seconds, seen=seen)
        assert condition is not None
        return condition

    def await_kind(self, name: str) -> None:
        """Wait until a kind is served, by its definition's name.

        ``kubectl wait`` refuses a definition of which the API server has said nothing yet.
        """

        def serves() -> bool:
            conditions = self.get("crd", name).get("status", {}).get("conditions") or []
            return any(
                (condition["type"], condition["status"]) == ("Established", "True")
                for condition in conditions
            )

        until(serves, what=f"{name} to be served")

    def system_pod(self, component: str) -> PodView:
        """The ready pod of a component of the release."""
        selector = f"app.kubernetes.io/component={component}"

        def look() -> PodView | None:
            pods = self.cluster.pods(SYSTEM, selector)
            return next((pod for pod in pods if pod.ready), None)

        pod = until(look, what=f"a ready pod of {component}")
        assert pod is not None
        return pod

    def kill(self, pod: str, *, namespace: str = "") -> None:
        """Delete a pod at once, as when its node is gone."""
        where = namespace or self.namespace
        command = self.tools.kubectl_command(
            "--namespace",
            where,
            "delete",
            "pod",
            pod,
            "--grace-period=0",
            "--force",
            "--wait=false",
        )
        tools.run(command, doing=f"killing {pod}")

    @contextlib.contextmanager
    def stores(self) -> Iterator[Stores]:
        """The namespace's stores; they end with the store's or the bucket's pod."""
        with stores(self.cluster, self.tools, self.namespace) as opened:
            yield opened


class RunReader:
    """Reads a run's documents, through a connection that is reopened whenever it breaks."""

    def __init__(self, lab: Lab, run: str) -> None:
        self._lab, self.run = lab, run
        self._open = contextlib.ExitStack()
        self._stores: Stores | None = None

    def close(self) -> None:
        """End the connection."""
        self._open.close()
        self._stores = None

    def read(self, look: Callable[[Stores], T]) -> T | None:
        """What ``look`` finds, or None while the stores do not answer."""
        try:
            if self._stores is None:
                self._stores = self._open.enter_context(self._lab.stores())
            return look(self._stores)
        except RLError:
            self.close()
            return None

    def document(self) -> Run | None:
        """The run document, or None while it cannot be read."""
        return self.read(lambda opened: opened.runs.get(self.run))

    def await_step(self, step: int, *, seconds: float = HUNG_SECONDS) -> Run:
        """Wait until ``step`` is committed."""

        def look() -> Run | None:
            run = self.document()
            return run if run and run.step >= step else None

        def seen() -> str:
            return repr(self.document())

        reached = until(look, what=f"step {step}", seconds=seconds, seen=seen)
        assert reached is not None
        return reached
