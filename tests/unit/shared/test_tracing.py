"""Tracing: off without an endpoint, refused without its packages, and harmless without a collector."""

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api.chat.span import add_events
from shared.protocol.events import Delta, Started
from shared.protocol.request import ChatRequest, Job, QueuedJob, TraceContext, decode_job, encode_job
from shared.runtime.settings import Settings
from shared.tracing import (
    ENDPOINTS,
    NO_TRACING,
    Attributes,
    EndedSpan,
    Span,
    Tracing,
    TracingUnavailable,
    start_tracing,
)
from tests.support.answers import ResponseStream, UsageRecorder
from tests.support.eventually import PATIENCE
from tests.support.fleet import free_port
from tests.support.recorded_spans import TRACE


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ENDPOINTS, "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


def start(endpoint: str = "", *, makes_roots: bool = True) -> Tracing:
    settings = Settings(otlp_traces_endpoint=endpoint)
    return start_tracing(settings, service="s", instance="i", attributes={}, makes_roots=makes_roots)


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracing]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
    before = set(threading.enumerate())
    tracing = start(f"http://127.0.0.1:{free_port()}/v1/traces")
    yield tracing
    tracing.close()
    # Exports that are tried again draw from the global random numbers, which must not happen during a Hypothesis test.
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_it_is_off_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    assert start() is NO_TRACING
    assert not NO_TRACING.enabled
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert start("http://127.0.0.1:1") is NO_TRACING


@pytest.mark.parametrize("variable", [*ENDPOINTS, ""])
def test_an_endpoint_without_the_packages_is_an_error(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delitem(sys.modules, "shared.tracing.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    if variable:
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    with pytest.raises(TracingUnavailable) as error:
        start("" if variable else "http://127.0.0.1:1")
    assert (variable or "--otlp-traces-endpoint") in str(error.value)
    assert "pip install --editable '.[otel]'" in str(error.value)


def test_a_collector_that_cannot_be_reached_is_logged_once(unreachable: Tracing, caplog: Any) -> None:
    with caplog.at_level(logging.INFO):
        now = time.monotonic()
        for _ in range(1200):
            span = unreachable.start_span("request", now)
            span.end(now)
        unreachable.close()
    by_logger = Counter(record.name for record in caplog.records if record.name.startswith("opentelemetry."))
    assert by_logger
    assert set(by_logger.values()) == {1}


def test_a_span_continues_the_trace_of_its_parent(unreachable: Tracing) -> None:
    parent = TraceContext(TRACE.traceparent, "vendor=value")
    span = unreachable.start_span("request", 0.0, parent=parent)
    assert span.trace_id in parent.traceparent
    assert span.context is not None
    assert span.context.traceparent.startswith(f"00-{span.trace_id}-")
    assert span.context != parent
    assert span.context.tracestate == "vendor=value"


@pytest.mark.parametrize(
    "header", ["", "garbage", TRACE.traceparent.upper(), "00-" + "0" * 32 + "-b7ad6b7169203331-01"]
)
def test_an_invalid_parent_is_ignored(unreachable: Tracing, header: str) -> None:
    span = unreachable.start_span("request", 0.0, parent=TraceContext(header, "vendor=value"))
    assert span.context is not None
    assert (span.trace_id in TRACE.traceparent, span.context.tracestate) == (False, "")


def test_a_worker_records_only_what_the_api_records() -> None:
    tracing = start(f"http://127.0.0.1:{free_port()}/v1/traces", makes_roots=False)
    not_sampled = TraceContext(TRACE.traceparent[:-1] + "0")
    contexts = [tracing.start_span("span", 0.0, parent=parent).context for parent in (TRACE, not_sampled, None)]
    assert [context is not None for context in contexts] == [True, False, False]
    tracing.close()


def test_a_job_carries_its_trace() -> None:
    request = ChatRequest(model="tiny")
    job = Job(id="a", reply_to="r", request=request, trace=TRACE)
    queued = decode_job(encode_job(QueuedJob.of(job, None)))
    assert queued.job(request) == job


@pytest.mark.parametrize("header", ["", "garbage", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_a_damaged_trace_of_a_job_does_no_harm(unreachable: Tracing, header: str) -> None:
    unreachable.record(EndedSpan("attempt", 1.0, 9.0, TraceContext(header, "="), {}, [("first token", 2.0)]))


class _Events(Span):
    def __init__(self) -> None:
        self.seen: list[tuple[str, float, dict[str, Any]]] = []

    def add_event(self, name: str, at: float, attributes: Attributes | None = None) -> None:
        self.seen.append((name, at, dict(attributes or {})))


def test_the_span_of_a_request_names_each_worker_that_has_claimed_it() -> None:
    stream, usage, span = ResponseStream(["a"], "m"), UsageRecorder(), _Events()
    usage.queued = time.monotonic()
    for event in (
        Started("w1", 3, "f", attempt=1),
        Delta(0, (7, 8), "xy"),
        Started("w3", 3, "f", attempt=3, cause="worker_lost", prompt_seconds=1.0, prefill_seconds=2.0),
    ):
        stream.choices[0].push(event.attempt if isinstance(event, Started) else 1, event)
    usage.first_token = time.monotonic()
    add_events(span, stream, usage)
    claim = {"vinoqueue.job": "a", "vinoqueue.attempt": 1, "vinoqueue.worker": "w1"}
    again = {"vinoqueue.job": "a", "vinoqueue.attempt": 3, "vinoqueue.worker": "w3", "vinoqueue.cause": "worker_lost"}
    assert [(name, attributes) for name, _, attributes in span.seen] == [
        ("queued", {}),
        ("claimed", claim),
        ("claimed", again),
        ("first token", {}),
    ]
    assert span.seen[2][1] == stream.attempts[1].arrived - 3


def test_a_request_that_never_started_was_queued() -> None:
    stream, usage, span = ResponseStream(["a"], "m"), UsageRecorder(), _Events()
    add_events(span, stream, usage)
    assert span.seen == []
    usage.queued = 5.0
    add_events(span, stream, usage)
    assert span.seen == [("queued", 5.0, {})]
