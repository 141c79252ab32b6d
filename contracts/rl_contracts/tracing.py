"""Traces of rollouts in OpenTelemetry's form, where the manifest asks for them.

The ids of a rollout's trace and of its root span follow from the rollout's id, and whether it is
traced follows from these: so sampler and trainer add to one trace, and nothing has to be stored.
opentelemetry is imported only where traces are wanted.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.training.tracking import Traces

EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
PACKAGES = "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"
ROOT = "rollout"
"""Name of the root span; a span without a parent that has another name is dropped."""
NANOSECONDS = 1_000_000_000
EXPORT_SECONDS = 10
CLOSE_SECONDS = 5
TRACEPARENT = "TRACEPARENT"
"""Variable that names the present span to a program."""

Facts = dict[str, Any]
"""Attributes of a span."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of a rollout's trace and of its root span."""

    trace: int
    """128 bits, not 0."""
    span: int
    """64 bits, not 0."""

    @classmethod
    def of(cls, rollout: str) -> Ids:
        """Those of the rollout with this id."""
        digest = hashlib.sha256(f"rollout:{rollout}".encode()).digest()
        trace = int.from_bytes(digest[:16], "big")
        return cls(trace or 1, int.from_bytes(digest[16:24], "big") or 1)


class _RolloutIds:
    """An IdGenerator that gives a root span the ids of its rollout."""

    def __init__(self, others: Any) -> None:
        self._others = others
        self.next: ContextVar[Ids | None] = ContextVar("ids of the next root", default=None)

    def generate_trace_id(self) -> int:
        ids = self.next.get()
        return ids.trace if ids else int(self._others.generate_trace_id())

    def generate_span_id(self) -> int:
        ids = self.next.get()
        self.next.set(None)
        return ids.span if ids else int(self._others.generate_span_id())

    def is_trace_id_random(self) -> bool:
        return False


class _OnlyRollouts:
    """A Sampler for spans without a parent: rollouts by their share, and nothing else."""

    def __init__(self, rollouts: Any, others: Any) -> None:
        self._rollouts, self._others = rollouts, others

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, *rest: Any, **more: Any
    ) -> Any:
        sampler = self._rollouts if name == ROOT else self._others
        return sampler.should_sample(parent_context, trace_id, name, *rest, **more)

    def get_description(self) -> str:
        return "rollouts"


class Tracing:
    """Sends spans of rollouts; what cannot be sent is dropped, and nothing waits for it."""

    def __init__(
        self, section: Traces, *, service: str, about: Mapping[str, str], clients: bool = False
    ) -> None:
        """Start sending.

        Args:
            section: the manifest's.
            service: name of the program.
            about: attributes of all spans.
            clients: libraries that trace what they do add to it, too: the MCP client, which names
                its span to servers. Only for the first one of a process.

        Raises:
            RefusedError: the image lacks the packages.
        """
        try:
            self._api = importlib.import_module("opentelemetry.trace")
            sdk = importlib.import_module("opentelemetry.sdk.trace")
            sampling = importlib.import_module("opentelemetry.sdk.trace.sampling")
            export = importlib.import_module("opentelemetry.sdk.trace.export")
            resources = importlib.import_module("opentelemetry.sdk.resources")
            exporter = importlib.import_module(EXPORTER)
        except ImportError as error:
            raise _missing(section, error) from error
        self._share = sampling.TraceIdRatioBased(section.share)
        self._ids = _RolloutIds(sdk.RandomIdGenerator())
        self._provider = sdk.TracerProvider(
            sampler=sampling.ParentBased(_OnlyRollouts(self._share, sampling.ALWAYS_OFF)),
            id_generator=self._ids,
            resource=resources.Resource({"service.name": service, **about}),
            shutdown_on_exit=False,
        )
        sender = exporter.OTLPSpanExporter(endpoint=section.endpoint, timeout=EXPORT_SECONDS)
        self._provider.add_span_processor(export.BatchSpanProcessor(sender))
        if clients:
            self._api.set_tracer_provider(self._provider)
        self._tracer = self._provider.get_tracer("rl-operator")

    @contextlib.contextmanager
    def rollout(self, rollout: str, *, ago: float, **facts: Any) -> Iterator[Facts]:
        """The root span of a rollout; spans in the block are below it.

        Args:
            rollout: its id.
            ago: seconds since it began.
            facts: attributes; more may be put into what is yielded.
        """
        self._ids.next.set(Ids.of(rollout))
        token = _active.set(self)
        start = time.time_ns() - int(ago * NANOSECONDS)
        try:
            with self._span(ROOT, start=start, facts=facts) as more:
                yield more
        finally:
            _active.reset(token)
            self._ids.next.set(None)

    def later(self, rollout: str, name: str, *, seconds: float, **facts: Any) -> None:
        """Add a span that ends now to the trace of a rollout, also in another program."""
        ids = Ids.of(rollout)
        if not self.traces(rollout):
            return
        sampled = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        root = self._api.SpanContext(ids.trace, ids.span, is_remote=True, trace_flags=sampled)
        parent = self._api.set_span_in_context(self._api.NonRecordingSpan(root))
        self._ended(name, seconds=seconds, facts=facts, parent=parent)

    def traces(self, rollout: str) -> bool:
        """Whether a rollout belongs to the share that is traced."""
        return bool(Ids.of(rollout).trace & self._share.TRACE_ID_LIMIT < self._share.bound)

    def close(self) -> None:
        """Send what is left, for a few seconds at most. Blocks."""
        self._provider.force_flush(CLOSE_SECONDS * 1000)
        self._provider.shutdown()

    @contextlib.contextmanager
    def _span(self, name: str, *, facts: Facts, start: int | None = None) -> Iterator[Facts]:
        more: Facts = {}
        with self._tracer.start_as_current_span(name, start_time=start, attributes=facts) as span:
            try:
                yield more
            finally:
                span.set_attributes(more)

    def _ended(self, name: str, *, seconds: float, facts: Facts, parent: Any = None) -> None:
        end = time.time_ns()
        start = end - int(seconds * NANOSECONDS)
        self._tracer.start_span(name, context=parent, start_time=start, attributes=facts).end(
            end_time=end
        )


class Untraced:
    """Stands for ``Tracing`` where the manifest asks for no traces."""

    @contextlib.contextmanager
    def rollout(self, rollout: str, *, ago: float, **facts: Any) -> Iterator[Facts]:
        """Do nothing around the block."""
        yield {}

    def later(self, rollout: str, name: str, *, seconds: float, **facts: Any) -> None:
        """Do nothing."""

    def traces(self, rollout: str) -> bool:
        """No rollout is traced."""
        return False

    def close(self) -> None:
        """Do nothing."""


Traced = Tracing | Untraced
_active: ContextVar[Tracing | None] = ContextVar("tracing of the present rollout", default=None)


def tracing_of(
    section: Traces | None, *, service: str, about: Mapping[str, str], clients: bool = False
) -> Traced:
    """What sends traces; arguments and errors as of ``Tracing``."""
    if section is None:
        return Untraced()
    return Tracing(section, service=service, about=about, clients=clients)


@contextlib.contextmanager
def span(name: str, **facts: Any) -> Iterator[Facts]:
    """A span of the present rollout around the block; nothing where it is not traced."""
    tracing = _active.get()
    if tracing is None:
        yield {}
        return
    with tracing._span(name, facts=facts) as more:
        yield more


def ended(name: str, *, seconds: float, **facts: Any) -> None:
    """Add a span that ends now to the present rollout, where it is traced."""
    tracing = _active.get()
    if tracing is not None:
        tracing._ended(name, seconds=seconds, facts=facts)


def variables() -> dict[str, str]:
    """The present span for a program that is started: W3C's ``traceparent``; empty without one."""
    if _active.get() is None:
        return {}
    carrier: dict[str, str] = {}
    importlib.import_module("opentelemetry.propagate").inject(carrier)
    return {TRACEPARENT: carrier["traceparent"]} if "traceparent" in carrier else {}


def _missing(section: Traces, error: ImportError) -> RefusedError:
    return RefusedError(
        Refusal(
            field="spec.training.tracking.traces",
            value=section.endpoint,
            reason="OptionUnusable",
            message=f"The image cannot send traces: {error}.",
            remedy=f"Use an image with the packages {PACKAGES}, as ours have, or remove it.",
        )
    )
