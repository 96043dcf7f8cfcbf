"""Tracing that keeps the spans in a list."""

from shared.protocol.request import TraceContext
from shared.tracing import EndedSpan, Tracing

TRACE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
"""A span that is recorded."""


class RecordedSpans(Tracing):
    """The part of :class:`~shared.tracing.Tracing` that records spans which have ended."""

    enabled = True

    def __init__(self) -> None:
        self.spans: list[EndedSpan] = []

    def record(self, span: EndedSpan) -> None:
        """Keep the span."""
        self.spans.append(span)
