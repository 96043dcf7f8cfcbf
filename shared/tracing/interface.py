"""The tracing interface of API and workers. The classes themselves do nothing: they are the tracing that is off.

All times are :func:`time.monotonic` seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.protocol.request import TraceContext

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """A span that has ended. ``events`` are names and times."""

    name: str
    started_at: float
    ended_at: float
    parent: TraceContext
    attributes: Attributes
    events: Sequence[tuple[str, float]] = ()
    error: str = ""


class Span:
    """A started span."""

    context: TraceContext | None = None
    """The trace context for its child spans; None if it is not recorded."""
    trace_id: str = ""
    """The trace's id in hexadecimal, even if the span is not recorded; empty while tracing is off."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def add_event(self, name: str, at: float, attributes: Attributes | None = None) -> None:
        """Add an event, which may be past."""

    def end(self, at: float, *, name: str = "", error: str = "") -> None:
        """End it. ``name`` replaces its name, ``error`` is the kind of error that ended it; both may be empty."""


NO_SPAN = Span()


class Tracing:
    """Makes spans and exports them in the background. Failures to export are logged at most once a minute."""

    enabled = False
    """Whether spans are exported."""

    def start_span(self, name: str, at: float, *, parent: TraceContext | None = None, server: bool = False) -> Span:
        """Start a span, which the sampler may decide not to record. ``server``: it serves a remote client.

        An invalid ``parent`` is ignored.
        """
        return NO_SPAN

    def record(self, span: EndedSpan) -> None:
        """Record a span that has ended."""

    def close(self) -> None:
        """Export the remaining spans, for at most a few seconds. Blocks."""


NO_TRACING = Tracing()
