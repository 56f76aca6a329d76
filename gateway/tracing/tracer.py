"""Sends traces to a collector by OTLP over HTTP, with OpenTelemetry's own SDK, an optional package.

It imports by name, when a collector is configured, since that takes a quarter of a second. Spans
are made when a task ends, from what it noted, so that a task under way does nothing else for them.
Names are those of the GenAI semantic conventions (OpenTelemetry 1.38, in development, 2026-11).
This is an edge.
"""

import importlib
import importlib.util
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gateway.config.sections import ConfigError, TracingConfig
from gateway.tracing.trace import TaskStep, Trace, caller_of

Attributes = Mapping[str, str | int | float | bool]


class GenerationSpan(NamedTuple):
    """Shows one generation as a span of a task."""

    step: TaskStep
    attributes: Attributes
    is_failed: bool


class Tracer:
    """Begins a share of tasks' traces, and sends those that have ended."""

    def __init__(self, config: TracingConfig, version: str, chance: random.Random) -> None:
        """Raises `ConfigError` if OpenTelemetry's SDK is not installed."""
        self._sample = config.sample
        self._chance = chance
        trace_sdk = _load("opentelemetry.sdk.trace")
        export = _load("opentelemetry.sdk.trace.export")
        sampling = _load("opentelemetry.sdk.trace.sampling")
        otlp = _load("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        resource = _load("opentelemetry.sdk.resources").Resource.create(
            {"service.name": config.service_name, "service.version": version}
        )
        self._api: Any = _load("opentelemetry.trace")
        self._ids = _Ids(chance)
        self._provider: Any = trace_sdk.TracerProvider(
            resource=resource, id_generator=self._ids, sampler=sampling.ALWAYS_ON
        )
        exporter = otlp.OTLPSpanExporter(endpoint=config.endpoint, timeout=config.timeout_s)
        self._provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self._tracer: Any = self._provider.get_tracer("lanewise", version)

    def begin(self, traceparent: str | None) -> Trace | None:
        """Returns a task's trace, or None if it is not sampled; a caller that decided is heard."""
        caller = caller_of(traceparent)
        if caller is not None:
            own_id = self._ids.random_span_id()
            return Trace(caller.trace_id, own_id, caller.span_id) if caller.is_sampled else None
        if self._chance.random() >= self._sample:
            return None
        return Trace(self._ids.random_trace_id(), self._ids.random_span_id(), None)

    def end(
        self,
        trace: Trace,
        whole: TaskStep,
        attributes: Attributes,
        generations: Sequence[GenerationSpan],
        *,
        error: str | None,
        epoch_ns: int,
    ) -> None:
        """Makes the spans of a task; `epoch_ns` is the Unix time when the monotonic one was 0."""
        parent = None
        if trace.parent_id is not None:
            parent = self._context_of(trace.trace_id, trace.parent_id, is_remote=True)
        self._ids.preset(trace.trace_id, trace.span_id)
        kind = self._api.SpanKind
        self._span(whole, parent, attributes, epoch_ns, kind.SERVER, error=error)
        own = self._context_of(trace.trace_id, trace.span_id, is_remote=False)
        for step in trace.steps:
            self._span(step, own, {}, epoch_ns, kind.INTERNAL)
        for each in generations:
            fault = "generation failed" if each.is_failed else None
            self._span(each.step, own, each.attributes, epoch_ns, kind.CLIENT, error=fault)

    def close(self) -> None:
        """Sends what is left; blocks for the exporter's timeout at most."""
        self._provider.shutdown()

    def _span(
        self,
        step: TaskStep,
        parent: Any,
        attributes: Attributes,
        epoch_ns: int,
        kind: Any,
        *,
        error: str | None = None,
    ) -> None:
        span = self._tracer.start_span(
            step.name,
            context=parent,
            kind=kind,
            attributes=attributes,
            start_time=epoch_ns + step.began_us * 1_000,
        )
        if error is not None:
            span.set_status(self._api.StatusCode.ERROR, error)
        span.end(end_time=epoch_ns + max(step.began_us, step.ended_us) * 1_000)

    def _context_of(self, trace_id: int, span_id: int, *, is_remote: bool) -> Any:
        flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
        context = self._api.SpanContext(trace_id, span_id, is_remote, flags)
        return self._api.set_span_in_context(self._api.NonRecordingSpan(context))


class _Ids:
    """Generates ids for OpenTelemetry, and gives a task's span the id that others know it by."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._trace_id: int | None = None
        self._span_id: int | None = None

    def preset(self, trace_id: int, span_id: int) -> None:
        """Sets the ids of the next span."""
        self._trace_id, self._span_id = trace_id, span_id

    def random_trace_id(self) -> int:
        """Returns a new one, which is never 0."""
        return self._chance.randrange(1, 1 << 128)

    def random_span_id(self) -> int:
        """Returns a new one, which is never 0."""
        return self._chance.randrange(1, 1 << 64)

    def generate_trace_id(self) -> int:
        """Is called by OpenTelemetry, for a span without a parent."""
        trace_id, self._trace_id = self._trace_id, None
        return self.random_trace_id() if trace_id is None else trace_id

    def generate_span_id(self) -> int:
        """Is called by OpenTelemetry, for each span."""
        span_id, self._span_id = self._span_id, None
        return self.random_span_id() if span_id is None else span_id

    def is_trace_id_random(self) -> bool:
        """Is called by OpenTelemetry."""
        return True


def _load(name: str) -> Any:
    needed = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if not all(map(_is_installed, needed)):
        raise ConfigError(
            "tracing.endpoint: traces need OpenTelemetry's SDK and its exporter: "
            "`pip install 'lanewise[tracing]'`",
            ("tracing", "endpoint"),
        )
    return importlib.import_module(name)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
