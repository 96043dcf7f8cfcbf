"""Tracing: spans of requests, exported by OpenTelemetry. Without an endpoint, OpenTelemetry is not imported."""

from shared.tracing.interface import NO_SPAN, NO_TRACING, Attributes, Span, Tracing
from shared.tracing.setup import TracingUnavailable, start_tracing

__all__ = [
    "NO_SPAN",
    "NO_TRACING",
    "Attributes",
    "Span",
    "Tracing",
    "TracingUnavailable",
    "start_tracing",
]
