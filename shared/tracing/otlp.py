"""Tracing by OpenTelemetry's SDK, exported by OTLP over HTTP. The only module that imports OpenTelemetry."""

import logging
import random
import socket
import threading
import time
from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span as OpenTelemetrySpan
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.protocol.request import TraceContext
from shared.runtime.version import VERSION
from shared.tracing.interface import Attributes, EndedSpan, Span, Tracing

_CLOSE_TIMEOUT = 2.0
"""Seconds for the last export."""

_LOG_INTERVAL = 60.0
"""Minimum time in seconds between two log lines about failing exports."""

_MAX_VALUE = 1024
"""Maximum number of characters of an attribute: clients choose paths and names of models."""

_EXPORTERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Loggers that report each failure."""

_NANOSECONDS = 1e9
_ROOT = Context()
_SCOPE = InstrumentationScope("vinoqueue", VERSION)
_UNSET, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
_propagator = TraceContextTextMapPropagator()


class OtlpTracing(Tracing):
    """Tracing by OpenTelemetry's SDK: a batch processor with a bounded queue, in a separate thread."""

    enabled = True

    def __init__(self, endpoint: str, resource: Attributes, *, makes_roots: bool) -> None:
        """``endpoint`` is the URL for traces; if empty, it comes from the environment. For the rest, see
        :func:`~shared.tracing.start_tracing`."""
        for name in _EXPORTERS:
            logging.getLogger(name).addFilter(_RateLimit())
        self._provider = TracerProvider(
            sampler=None if makes_roots else ParentBased(ALWAYS_OFF),
            resource=Resource.create({"service.version": VERSION, "host.name": socket.gethostname(), **resource}).merge(
                OTELResourceDetector().detect()
            ),
            shutdown_on_exit=False,
        )
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None))
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer(_SCOPE.name, _SCOPE.version)

    def start_span(self, name: str, at: float, *, parent: TraceContext | None = None, server: bool = False) -> Span:
        return _OtlpSpan(
            self._tracer.start_span(
                name,
                _context_of(parent) if parent is not None else _ROOT,
                SpanKind.SERVER if server else SpanKind.INTERNAL,
                start_time=_unix_nanoseconds(at),
            )
        )

    def record(self, span: EndedSpan) -> None:
        """Record a span that has ended.

        Constructs the SDK's span directly: a tracer takes three times as long. These spans have few attributes, none of
        them from clients.
        """
        parent_context = _span_context_of(span.parent)
        if not parent_context.trace_flags.sampled:
            return
        context = SpanContext(
            parent_context.trace_id,
            random.getrandbits(64),
            is_remote=False,
            trace_flags=parent_context.trace_flags,
            trace_state=parent_context.trace_state,
        )
        recorded = ReadableSpan(
            span.name,
            context,
            parent_context,
            self._provider.resource,
            {**span.attributes, "error.type": span.error} if span.error else span.attributes,
            events=[Event(name, timestamp=_unix_nanoseconds(at)) for name, at in span.events],
            status=_FAILED if span.error else _UNSET,
            start_time=_unix_nanoseconds(span.started_at),
            end_time=_unix_nanoseconds(span.ended_at),
            instrumentation_scope=_SCOPE,
        )
        self._processor.on_end(recorded)

    def close(self) -> None:
        """Export the remaining spans. An unreachable collector delays the process's end only briefly."""
        closing = threading.Thread(target=self._provider.shutdown, name="last export", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT)


class _OtlpSpan(Span):
    def __init__(self, span: OpenTelemetrySpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.trace_id = format_trace_id(context.trace_id)
        if context.trace_flags.sampled:
            self.context = TraceContext(
                f"00-{self.trace_id}-{format_span_id(context.span_id)}-{context.trace_flags:02x}",
                context.trace_state.to_header(),
            )

    def set(self, attributes: Attributes) -> None:
        # The SDK's context limit would log each value that exceeds it.
        self._span.set_attributes(
            {name: value[:_MAX_VALUE] if isinstance(value, str) else value for name, value in attributes.items()}
        )

    def add_event(self, name: str, at: float, attributes: Attributes | None = None) -> None:
        self._span.add_event(name, attributes, _unix_nanoseconds(at))

    def end(self, at: float, *, name: str = "", error: str = "") -> None:
        if name:
            self._span.update_name(name)
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(_FAILED)
        self._span.end(_unix_nanoseconds(at))


class _RateLimit(logging.Filter):
    """Passes one record per :data:`_LOG_INTERVAL` seconds."""

    _until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        passes = now >= self._until
        if passes:
            self._until = now + _LOG_INTERVAL
        return passes


def _unix_nanoseconds(at: float) -> int:
    return time.time_ns() - int((time.monotonic() - at) * _NANOSECONDS)


@lru_cache(maxsize=64)
def _span_context_of(trace: TraceContext) -> SpanContext:
    """Return ``trace`` as the SDK's span context; an invalid one is not sampled."""
    return get_current_span(_context_of(trace)).get_span_context()


def _context_of(trace: TraceContext) -> Context:
    """Return the context with ``trace`` as its remote span, or without one if it is invalid."""
    return _propagator.extract({"traceparent": trace.traceparent, "tracestate": trace.tracestate}, _ROOT)
