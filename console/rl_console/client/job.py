"""One RLJob: created, watched, stopped and read from Python."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console

from rl_console.actions.submitting import create
from rl_console.actions.suspension import set_suspended, stop_job
from rl_console.client.connection import Connection, connect
from rl_console.client.run_queries import RunQueries
from rl_console.client.watching import Watch
from rl_console.errors import UsageError
from rl_console.following.follow import POLL_SECONDS, STALLED_SECONDS, Limits
from rl_console.following.session import Session
from rl_console.jobs import JobObject
from rl_console.manifests.checks import problems
from rl_console.manifests.files import Document, name_of, read
from rl_console.queries.episodes import sampler_of
from rl_console.queries.run_data import RunData
from rl_console.queries.source import checked
from rl_contracts.requested import EpisodeAnswer, EpisodeRequest, Event, TextEvent
from rl_contracts.spec.resources import API_VERSION, RLJobSpec
from rl_contracts.spec.status import RLJobStatus

WAIT_SECONDS = 24 * 3600.0
"""Deadline of a wait that names none."""
CHAT_SECONDS = 300.0
SUSPEND_SECONDS = 600.0
"""The same of a suspension and of a stop: the trainer writes a checkpoint first."""


class RLJob(RunQueries):
    """An RLJob of a cluster, whether it exists already or is to be submitted.

    Calls raise a ConsoleError that says what was being done, why it failed, and what to do:
    NotFoundError where the job does not exist, NotAllowedError without the right.
    """

    def __init__(
        self,
        name: str,
        spec: RLJobSpec | Mapping[str, Any] | None = None,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Name a job, without a request.

        Args:
            name: of the job.
            spec: of a job that is to be submitted, as a model or as in a manifest (camelCase).
            namespace: of the job; None: the connection's.
            labels: of a job that is to be submitted.
            annotations: the same.
            connection: None: that of ``connect()``, made when it is first needed.
        """
        self.name = name
        self.spec = spec
        self._namespace, self._chosen = namespace, connection
        self._labels, self._annotations = labels, annotations

    @classmethod
    def read(cls, file: str | Path, *, connection: Connection | None = None) -> Self:
        """A job from a YAML or JSON manifest that holds one RLJob.

        Raises:
            UsageError: the file cannot be read, or holds something else.
        """
        documents = read([Path(file)])
        if [each.manifest.get("kind") for each in documents] != ["RLJob"]:
            raise UsageError(
                f"{file} holds {', '.join(each.name for each in documents)}",
                remedy="Name a file with one RLJob; create the others with `kubectl rl submit -f`",
            )
        manifest = documents[0].manifest
        metadata, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
        if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
            raise UsageError(
                f"{file}: metadata or spec is no object", remedy="`kubectl rl validate` says more"
            )
        return cls(
            name_of(manifest),
            spec,
            namespace=metadata.get("namespace"),
            labels=metadata.get("labels"),
            annotations=metadata.get("annotations"),
            connection=connection,
        )

    def __repr__(self) -> str:
        return f"RLJob({self.name!r})"

    @functools.cached_property
    def connection(self) -> Connection:
        """The cluster of the job."""
        return self._chosen or connect()

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return self._namespace or self.connection.namespace

    @property
    def manifest(self) -> dict[str, Any]:
        """What ``submit`` sends: fields that are not set get their defaults from the API server.

        Raises:
            UsageError: the job was named without a spec.
        """
        if self.spec is None:
            raise UsageError(f"RLJob {self.name} has no spec", remedy="Give one: RLJob(name, spec)")
        spec = self.spec
        if isinstance(spec, RLJobSpec):
            spec = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        metadata: dict[str, Any] = {"name": self.name, "namespace": self._namespace}
        metadata |= {"labels": self._labels, "annotations": self._annotations}
        return {
            "apiVersion": API_VERSION,
            "kind": "RLJob",
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": dict(spec),
        }

    def problems(self) -> list[str]:
        """What the API server would refuse, field by field; empty: nothing. Asks no cluster."""
        return [str(each) for each in problems(self.manifest)]

    def submit(self, *, dry_run: bool = False) -> Self:
        """Create the job, and return it.

        Args:
            dry_run: ask the API server whether it would take the job, and create nothing.

        Raises:
            UsageError: ``problems`` are known beforehand.
            RequestRefusedError: the API server refuses the job, or it exists already.
        """
        if wrong := self.problems():
            raise UsageError(f"RLJob {self.name} would be refused: {'; '.join(wrong)}")
        document = Document(file="this program", manifest=self.manifest)
        list(create(self.connection.cluster, [document], dry_run=dry_run))
        return self

    def status(self) -> RLJobStatus:
        """The job's state now."""
        return self._object().status

    def watch(self, *, timeout: float = WAIT_SECONDS, interval: float = POLL_SECONDS) -> Watch:
        """The state now and each later one, for ``for`` and for ``async for``.

        Args:
            timeout: seconds after which the loop ends with TimeOverError; before that it ends with
                the job.
            interval: seconds between two reads. States in between are not seen.
        """
        return Watch(read=self._object, timeout=timeout, interval=interval)

    def wait(
        self, *, timeout: float = WAIT_SECONDS, stalled_seconds: float = STALLED_SECONDS
    ) -> RLJobStatus:
        """Wait until the job is complete; returns its last state.

        Args:
            timeout: seconds until the deadline.
            stalled_seconds: how long the job may be Stalled: it goes on when the cause is gone.

        Raises:
            TimeOverError: it has not ended in time. It goes on.
            NotFoundError: it does not exist, or was deleted.
            ClusterUnavailableError: the API server does not answer for two minutes.
            StageFailedError: it failed or stalled; with remedy and last lines of log.
        """
        session = Session(
            cluster=self.connection.cluster,
            console=Console(quiet=True, force_terminal=False, force_jupyter=False),
            namespace=self.namespace,
            job=self.name,
        )
        limits = Limits(total_seconds=timeout, stalled_seconds=stalled_seconds)
        ending = session.follow(limits)
        session.finish(ending)
        assert ending.snapshot is not None
        return ending.snapshot.job.status

    def suspend(self, *, timeout: float | None = SUSPEND_SECONDS) -> RLJobStatus:
        """Stop all pods after a checkpoint; returns the state.

        Args:
            timeout: seconds until all pods are gone; None: only ask for it.

        Raises:
            TimeOverError: they are not gone in time. The suspension goes on.
            RequestRefusedError: the job has ended.
        """
        return self._set_suspended(True, timeout)

    def resume(self, *, timeout: float | None = None) -> RLJobStatus:
        """Go on from the checkpoint of a suspension; returns the state.

        Args:
            timeout: seconds until the job is at work; None: only ask for it.

        Raises:
            TimeOverError: it is not at work in time. It goes on.
            RequestRefusedError: the job has ended.
        """
        return self._set_suspended(False, timeout)

    def stop(self, *, timeout: float | None = SUSPEND_SECONDS) -> RLJobStatus:
        """End the run for good, after a checkpoint; returns the state. Cannot be taken back.

        Args:
            timeout: seconds until the job has ended; None: only ask for it.

        Raises:
            TimeOverError: it has not ended in time. It goes on ending.
            RequestRefusedError: the job has ended already.
        """
        stop_job(self.connection.cluster, self.namespace, self.name, wait=timeout)
        return self.status()

    def chat(
        self,
        message: str | Sequence[Mapping[str, str]],
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        pod: str = "",
        timeout: float = CHAT_SECONDS,
        on_text: Callable[[str], object] | None = None,
    ) -> EpisodeAnswer:
        """Ask the policy that the job serves now, with the job's tools. Nothing of it is stored.

        Args:
            message: a message of the user, or a conversation: ``role`` and ``content`` of each
                message. An answer's ``messages`` continue it.
            temperature: 0: the most probable tokens. None: the job's.
            max_tokens: of one response, never more than the job's; None: the job's.
            pod: of the sampler that answers; empty: the first that is ready.
            timeout: seconds until the answer must be whole.
            on_text: called with each piece of text as it is sampled. Where an update of the weights
                ends a response, the text of the response that replaces it follows.

        Returns:
            Text, turns with tool calls, and the policy versions that sampled them.

        Raises:
            NotFoundError: no sampler is ready.
            NotAllowedError: you may not create pods/portforward.
            RequestRefusedError: the sampler refuses it, or kubectl is not installed.
            TimeOverError: it has not ended in time.
        """
        messages = (
            [{"role": "user", "content": message}] if isinstance(message, str) else list(message)
        )
        with checked():
            request = EpisodeRequest.model_validate(
                {"messages": messages, "temperature": temperature, "max_tokens": max_tokens}
            )
        connection = self.connection
        with sampler_of(
            connection.cluster, connection.tools, self.namespace, self.name, pod=pod
        ) as sampler:
            return sampler.play(request, seconds=timeout, hear=_text_for(on_text))

    @property
    def _data(self) -> RunData:
        return RunData(self.connection.source, self.namespace, self.name)

    def _object(self, left: float = math.inf) -> JobObject:
        return self.connection.cluster.within(left).job(self.namespace, self.name)

    def _set_suspended(self, suspended: bool, timeout: float | None) -> RLJobStatus:
        cluster = self.connection.cluster
        set_suspended(cluster, self.namespace, self.name, suspended=suspended, wait=timeout)
        return self.status()


def _text_for(on_text: Callable[[str], object] | None) -> Callable[[Event], None] | None:
    """Passes the text of events on."""
    if on_text is None:
        return None

    def hear(event: Event) -> None:
        if isinstance(event, TextEvent):
            on_text(event.text)

    return hear
