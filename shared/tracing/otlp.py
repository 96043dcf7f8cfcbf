"""Tracing by OpenTelemetry's SDK, exported by OTLP over HTTP. The only module that imports OpenTelemetry."""

import logging
import socket
import threading
import time
from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, format_span_id, format_trace_id, get_current_span
from opentelemetry.trace import Span as OpenTelemetrySpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.protocol.trace import TraceContext
from shared.runtime.version import VERSION
from shared.tracing.interface import Attributes, Span

_CLOSE_TIMEOUT = 2.0
"""Seconds for the last export."""

_QUIET = 60.0
"""Minimum time in seconds between two log lines about failing exports."""

_EXPORTERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Loggers that report each failure."""

_NANOSECONDS = 1e9
_ROOT = Context()
_propagator = TraceContextTextMapPropagator()


class OtlpTracing:
    """Tracing by OpenTelemetry's SDK: a batch processor with a bounded queue, in a thread of its own."""

    enabled = True

    def __init__(self, endpoint: str, resource: Attributes, *, makes_roots: bool) -> None:
        """``endpoint`` is the URL for traces; if empty, it comes from the environment. For the rest, see
        :func:`~shared.tracing.setup.start_tracing`."""
        for name in _EXPORTERS:
            logging.getLogger(name).addFilter(_Seldom())
        self._ids = _Ids()
        self._provider = TracerProvider(
            sampler=None if makes_roots else ParentBased(ALWAYS_OFF),
            resource=Resource.create({"service.version": VERSION, "host.name": socket.gethostname(), **resource}).merge(
                OTELResourceDetector().detect()
            ),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint or None)))
        self._tracer = self._provider.get_tracer("vinoqueue", VERSION)

    def begin(self, name: str, at: float, *, parent: TraceContext | None = None, server: bool = False) -> Span:
        """Begin a span."""
        return _OtlpSpan(
            self._tracer.start_span(
                name,
                _context_of(parent) if parent is not None else _ROOT,
                SpanKind.SERVER if server else SpanKind.INTERNAL,
                start_time=_unix_nanoseconds(at),
            )
        )

    def record(
        self,
        name: str,
        began: float,
        ended: float,
        *,
        parent: TraceContext,
        attributes: Attributes,
        error: str = "",
        span_id: str = "",
        link: TraceContext | None = None,
    ) -> None:
        """Record a span that has ended."""
        self._ids.next = int(span_id, 16) if span_id else 0
        links = (Link(get_current_span(_context_of(link)).get_span_context()),) if link is not None else ()
        span = self._tracer.start_span(
            name, _context_of(parent), attributes=attributes, links=links, start_time=_unix_nanoseconds(began)
        )
        _end(span, ended, error)

    def close(self) -> None:
        """Export what is left. A collector that can't be reached does not delay the process's end for long."""
        closing = threading.Thread(target=self._provider.shutdown, name="last export", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT)


class _OtlpSpan:
    __slots__ = ("_span", "context", "trace_id")

    def __init__(self, span: OpenTelemetrySpan) -> None:
        self._span = span
        own = span.get_span_context()
        self.trace_id = format_trace_id(own.trace_id)
        self.context: TraceContext | None = None
        if own.trace_flags.sampled:
            self.context = TraceContext(
                f"00-{self.trace_id}-{format_span_id(own.span_id)}-{own.trace_flags:02x}", own.trace_state.to_header()
            )

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def end(self, at: float, *, name: str = "", error: str = "") -> None:
        if name:
            self._span.update_name(name)
        _end(self._span, at, error)


class _Ids(RandomIdGenerator):
    """Random ids, except for a span whose id is given in ``next``."""

    next = 0

    def generate_span_id(self) -> int:
        given, self.next = self.next, 0
        return given or super().generate_span_id()


class _Seldom(logging.Filter):
    """Lets one record pass per :data:`_QUIET` seconds."""

    _until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        passes = now >= self._until
        if passes:
            self._until = now + _QUIET
        return passes


def _end(span: OpenTelemetrySpan, at: float, error: str) -> None:
    if error:
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR))
    span.end(_unix_nanoseconds(at))


def _unix_nanoseconds(at: float) -> int:
    return time.time_ns() - int((time.monotonic() - at) * _NANOSECONDS)


@lru_cache(maxsize=64)
def _context_of(trace: TraceContext) -> Context:
    """Return the context with ``trace`` as its remote span, or without one if it is invalid."""
    return _propagator.extract({"traceparent": trace.traceparent, "tracestate": trace.tracestate}, _ROOT)
