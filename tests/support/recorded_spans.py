"""Tracing that keeps the spans in a list."""

from dataclasses import dataclass

from shared.protocol.request import TraceContext
from shared.tracing import Attributes, Tracing

TRACE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
"""A span that is recorded."""


@dataclass
class RecordedSpan:
    """The arguments of :meth:`RecordedSpans.record`."""

    name: str
    started_at: float
    ended_at: float
    parent: TraceContext
    attributes: Attributes
    error: str
    span_id: str
    link: TraceContext | None


class RecordedSpans(Tracing):
    """The part of :class:`~shared.tracing.Tracing` that records spans which have ended."""

    enabled = True

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def record(
        self,
        name: str,
        started_at: float,
        ended_at: float,
        *,
        parent: TraceContext,
        attributes: Attributes,
        error: str = "",
        span_id: str = "",
        link: TraceContext | None = None,
    ) -> None:
        """Keep the span."""
        self.spans.append(RecordedSpan(name, started_at, ended_at, parent, attributes, error, span_id, link))
