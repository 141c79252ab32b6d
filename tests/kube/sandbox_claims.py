"""How long claims of agent-sandbox wait for a pod: seen by watches, which cost the server little.

A claim has its pod once its status names the Sandbox, whose pod has the same name, and that pod is
Ready and has the label of claimed pods, by which the Service of episodes selects it. The time is
from the first sight of the claim. So what the API server takes to write the claim is not in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client, watch

from rl_operator.kube import kinds, names

Raw = dict[str, Any]

WATCH_SECONDS = 5
"""Of one request: a watch notices its end after so long at most."""


@dataclass(frozen=True)
class Taken:
    """The pod of a claim.

    Attributes:
        pod: its name.
        seconds: from the first sight of the claim until the pod could be reached.
        was_ready: whether the pod stood ready when the claim came.
    """

    pod: str
    seconds: float
    was_ready: bool


@dataclass
class ClaimWatch:
    """The claims of a namespace and their pods, as long as the context lasts.

    Attributes:
        api: of the API server.
        namespace: of the claims.
        pods: label selector of the pods.
        see_pod: is called with each pod that a watch shows, from one thread.
    """

    api: client.ApiClient
    namespace: str
    pods: str
    see_pod: Callable[[Raw], None] = lambda pod: None
    began: dict[str, float] = field(default_factory=dict)
    """First sight of a claim, by its uid; this and all times are of the monotonic clock."""
    bound: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Pod of a claim, by its uid, and since when its status names it."""
    ready: dict[str, float] = field(default_factory=dict)
    """First sight of a Ready pod, by its name."""
    served: dict[str, float] = field(default_factory=dict)
    """First sight of a Ready pod with the label of claimed pods, by its name."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> ClaimWatch:
        of_pods = {"label_selector": self.pods}
        of_claims = {
            "group": kinds.SANDBOX_CLAIM.group,
            "version": kinds.SANDBOX_CLAIM.version,
            "plural": kinds.SANDBOX_CLAIM.plural,
        }
        list_pods = client.CoreV1Api(self.api).list_namespaced_pod
        list_claims = client.CustomObjectsApi(self.api).list_namespaced_custom_object
        self._threads = [
            threading.Thread(target=self._follow, args=(list_pods, self._see_pod, of_pods)),
            threading.Thread(target=self._follow, args=(list_claims, self._see_claim, of_claims)),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def taken(self) -> dict[str, Taken]:
        """The claims that have a pod, by uid."""
        return {
            uid: Taken(
                pod=pod,
                seconds=max(since, self.served[pod]) - self.began[uid],
                was_ready=self.ready[pod] <= self.began[uid],
            )
            for uid, (pod, since) in list(self.bound.items())
            if pod in self.served
        }

    def _follow(self, listing: Callable[..., Any], see: Callable[[Raw], None], place: Raw) -> None:
        while not self._stopped.is_set():
            events = watch.Watch().stream(
                listing,
                namespace=self.namespace,
                timeout_seconds=WATCH_SECONDS,
                deserialize=False,
                **place,
            )
            for event in events:
                if event["type"] != "DELETED":
                    see(event["object"])

    def _see_claim(self, claim: Raw) -> None:
        uid, now = claim["metadata"]["uid"], time.monotonic()
        self.began.setdefault(uid, now)
        if pod := claim.get("status", {}).get("sandbox", {}).get("name", ""):
            self.bound.setdefault(uid, (pod, now))

    def _see_pod(self, pod: Raw) -> None:
        name, now = pod["metadata"]["name"], time.monotonic()
        conditions = pod.get("status", {}).get("conditions") or []
        if any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
            self.ready.setdefault(name, now)
            if pod["metadata"]["labels"].get(names.CLAIMED_LABEL) == "true":
                self.served.setdefault(name, now)
        self.see_pod(pod)


def percentile(seconds: list[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]
