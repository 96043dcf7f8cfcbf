"""A collector of traces: an OTLP/HTTP server in the test's process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

_NOTABLE = {
    "vinoqueue.attempt": "attempt",
    "vinoqueue.worker": "worker",
    "vinoqueue.cause": "cause",
    "vinoqueue.resumed_tokens": "resumed",
    "gen_ai.usage.input_tokens": "input",
    "gen_ai.usage.output_tokens": "output",
    "vinoqueue.outcome": "outcome",
    "error.type": "error",
}
"""Attributes that :func:`tree` shows, and how."""


@dataclass(frozen=True)
class ReceivedSpan:
    """A span that a process has exported. Ids are hexadecimal, times are Unix seconds."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    began: float
    ended: float
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: tuple[tuple[str, float, dict[str, Any]], ...]
    """Names, times and attributes."""
    error: bool
    state: str

    @property
    def process(self) -> str:
        """The id of the replica or worker."""
        return str(self.resource["service.instance.id"])


class Collector:
    """Keeps the spans that it receives."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        """The spans of a trace, by their start times."""
        return sorted((span for span in self.spans if span.trace == trace_id), key=lambda span: span.began)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that is ended with the block."""
    running = Collector()
    thread = Thread(target=running.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        thread.join()
        running.server.server_close()


def tree(spans: list[ReceivedSpan]) -> str:
    """Spans of a trace as a tree, with times in milliseconds since its start."""
    zero = min((span.began for span in spans), default=0.0)
    known = {span.id for span in spans}

    def notes(attributes: dict[str, Any]) -> str:
        return " ".join(f"{label}={attributes[name]}" for name, label in _NOTABLE.items() if name in attributes)

    def lines(parent: str, indent: str) -> Iterator[str]:
        children = [span for span in spans if (span.parent if span.parent in known else "") == parent]
        for span in sorted(children, key=lambda span: (span.began, span.ended)):
            times = f"{(span.began - zero) * 1e3:6.0f} to {(span.ended - zero) * 1e3:6.0f} ms"
            head = f"{indent}{span.name}"
            yield f"{head:<30} {times}  {span.process:<10} {notes(span.attributes)}".rstrip()
            for name, at, attributes in span.events:
                yield f"{f'{indent}- {name}':<30} {(at - zero) * 1e3:6.0f} ms  {notes(attributes)}".rstrip()
            yield from lines(span.id, indent + "  ")

    return "\n".join(lines("", ""))


def _spans(message: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for group in message.resource_spans:
        resource = _attributes(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    name=span.name,
                    kind=ProtoSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                    began=span.start_time_unix_nano / 1e9,
                    ended=span.end_time_unix_nano / 1e9,
                    attributes=_attributes(span.attributes),
                    resource=resource,
                    events=tuple(
                        (event.name, event.time_unix_nano / 1e9, _attributes(event.attributes)) for event in span.events
                    ),
                    error=span.status.code == Status.STATUS_CODE_ERROR,
                    state=span.trace_state,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
