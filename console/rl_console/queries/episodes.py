"""Episodes on request: a sampler of a job plays them with the policy that it serves now.

The sampler's agent answers on its pod's loopback alone, so the way to it is a port-forward, which
takes the right to create ``pods/portforward``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

from pydantic import ValidationError

from rl_console.cluster.kube import Cluster
from rl_console.cluster.portforward import open_forwarded, port_forward
from rl_console.errors import NotFoundError, RequestRefusedError, TimeOverError, UsageError
from rl_console.pods import PodView
from rl_console.tools import Tools
from rl_console.view import ENDED_PHASES
from rl_contracts.requested import (
    EPISODE_SECONDS,
    EVENT,
    PATH,
    STREAM,
    EndEvent,
    EpisodeAnswer,
    EpisodeRequest,
    Event,
    RefusedEvent,
)

MOST_BYTES = 64 << 20
"""Of an answer."""
MOST_CAUSE_BYTES = 4000
TOO_MANY, NOT_FOUND = 429, 404
TRY_AGAIN = "Try again, or another sampler with --pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A sampler that can be reached while its port is forwarded."""

    pod: str
    url: str

    def play(
        self,
        request: EpisodeRequest,
        *,
        seconds: float = EPISODE_SECONDS + 30,
        hear: Callable[[Event], None] | None = None,
    ) -> EpisodeAnswer:
        """Have an episode played.

        Args:
            request: which one.
            seconds: deadline; a request that is given up ends the episode.
            hear: called with each event while the episode goes on. A sampler of an earlier release
                tells of none.

        Raises:
            NotFoundError: the stored task is deleted.
            RequestRefusedError: the sampler does not play it, and says why.
            TimeOverError: it has not ended in time.
        """
        doing, ends = f"asking sampler {self.pod} for an episode", time.monotonic() + seconds
        sent = urllib.request.Request(
            f"{self.url}{PATH}",
            request.model_dump_json().encode(),
            {"Content-Type": "application/json", **({"Accept": STREAM} if hear else {})},
        )
        try:
            with open_forwarded(sent, seconds=seconds) as given:
                if hear and given.headers.get("Content-Type") == STREAM:
                    return _heard(given, hear, doing=doing, ends=ends)
                return EpisodeAnswer.model_validate_json(given.read(MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(doing, error) from error
        except TimeoutError as error:
            raise TimeOverError(
                f"the episode has not ended after {seconds:.0f} s", remedy=TRY_AGAIN
            ) from error
        except (OSError, http.client.HTTPException) as error:
            cause = f"the connection to the pod ended: {str(error) or type(error).__name__}"
            raise RequestRefusedError(doing=doing, cause=cause, remedy=TRY_AGAIN) from error
        except ValidationError as error:
            cause = "the answer has another form: this command is of another release"
            raise RequestRefusedError(doing=doing, cause=cause) from error


@contextlib.contextmanager
def sampler_of(
    cluster: Cluster, tools: Tools, namespace: str, job: str, *, pod: str = ""
) -> Iterator[Sampler]:
    """Forward a port to a sampler of a job while the context lasts.

    Args:
        cluster: where the job is.
        tools: has kubectl.
        namespace: of the job.
        job: its name.
        pod: of the sampler; empty: the first that is ready.

    Raises:
        NotFoundError: no sampler is ready.
        UsageError: the pod is no sampler of the job.
        NotAllowedError, RequestRefusedError: as ``port_forward``.
    """
    chosen = _chosen(cluster, namespace, job, pod)
    port = chosen.chat_ports[job]
    with port_forward(tools, namespace=namespace, target=f"pod/{chosen.name}", port=port) as local:
        yield Sampler(pod=chosen.name, url=f"http://127.0.0.1:{local}")


def _chosen(cluster: Cluster, namespace: str, job: str, pod: str) -> PodView:
    phase = cluster.job(namespace, job).status.phase
    samplers = [each for each in cluster.pods_of(namespace, job) if job in each.chat_ports]
    doing = f"looking for a sampler of {namespace}/{job} that is ready"
    meant = f"{job} {cluster.options(namespace)}"
    if pod:
        named = [each for each in samplers if each.name == pod]
        if not named:
            raise UsageError(
                f"{pod} is no sampler pod of {job}", remedy=f"`kubectl rl top {meant}` shows them"
            )
        samplers = named
    ready = [each for each in samplers if each.ready]
    if ready:
        return ready[0]
    if samplers:
        remedy = (
            f"{len(samplers)} start or serve no policy yet: `kubectl rl status {meant}` says why"
        )
        raise NotFoundError(doing=doing, remedy=remedy)
    raise NotFoundError(doing=doing, remedy=_remedy(meant, phase))


def _remedy(job: str, phase: str) -> str:
    if phase in ENDED_PHASES:
        return f"The job is {phase} and has no pods any more"
    if phase == "Suspended":
        return f"Go on with `kubectl rl resume {job}`"
    return f"`kubectl rl status {job}` says why there is none"


def _heard(
    lines: IO[bytes], hear: Callable[[Event], None], *, doing: str, ends: float
) -> EpisodeAnswer:
    """Read events up to the answer; TimeoutError at the first event after ``ends``, monotonic."""
    while line := lines.readline(MOST_BYTES):
        event = EVENT.validate_json(line)
        if isinstance(event, EndEvent):
            return event.answer
        if isinstance(event, RefusedEvent):
            raise RequestRefusedError(doing=doing, cause=event.message, remedy=TRY_AGAIN)
        if time.monotonic() > ends:
            raise TimeoutError
        hear(event)
    raise RequestRefusedError(doing=doing, cause="the pod ended its answer", remedy=TRY_AGAIN)


def _refused(doing: str, error: urllib.error.HTTPError) -> Exception:
    body = error.read(MOST_CAUSE_BYTES)
    try:
        cause = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        cause = f"{error.code}: the sampler's image is of another release"
    if error.code == NOT_FOUND:
        return NotFoundError(doing=doing, remedy=cause)
    remedy = TRY_AGAIN if error.code == TOO_MANY else ""
    return RequestRefusedError(doing=doing, cause=cause, remedy=remedy)
