"""What API and workers use of tracing, and its form when it is off.

All times are :func:`time.monotonic` seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from shared.protocol.trace import TraceContext

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]


class Span(Protocol):
    """A span that has begun."""

    @property
    def context(self) -> TraceContext | None:
        """What makes other spans its children; None if it is not recorded."""

    @property
    def trace_id(self) -> str:
        """The trace's id in hexadecimal, even if the span is not recorded; empty while tracing is off."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def end(self, at: float, *, name: str = "", error: str = "") -> None:
        """End it, with its final ``name`` if that was not known before. ``error`` is what kind of error has ended it,
        if one has."""


class Tracing(Protocol):
    """Makes spans and exports them in the background. Failures to export are logged at most once a minute."""

    @property
    def enabled(self) -> bool:
        """Whether spans are exported."""

    def begin(self, name: str, at: float, *, parent: TraceContext | None = None, server: bool = False) -> Span:
        """Begin a span, which the sampler may decide not to record. ``server`` says that it serves a remote client.

        An invalid ``parent`` is ignored.
        """

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
        """Record a span that has ended. ``span_id`` (hexadecimal) is its id; by default it is random."""

    def close(self) -> None:
        """Export what is left, for at most a few seconds. Blocks."""


class _NoSpan:
    context = None
    trace_id = ""

    def set(self, attributes: Attributes) -> None:
        pass

    def end(self, at: float, *, name: str = "", error: str = "") -> None:
        pass


NO_SPAN: Span = _NoSpan()


class _NoTracing:
    enabled = False

    def begin(self, name: str, at: float, *, parent: TraceContext | None = None, server: bool = False) -> Span:
        return NO_SPAN

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
        pass

    def close(self) -> None:
        pass


NO_TRACING: Tracing = _NoTracing()
