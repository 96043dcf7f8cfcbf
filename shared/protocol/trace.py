"""The trace of a request, as it travels with its jobs."""

import msgspec


class TraceContext(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A span as the parent of another process's spans: the two headers of W3C Trace Context."""

    traceparent: str
    tracestate: str = ""
