"""Tracing: off without an endpoint, refused without its packages, and harmless without a collector."""

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api.chat import span as chat_span
from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import Delta, Failed, Finished, Started
from shared.protocol.request import ChatRequest, Job, QueuedJob, TraceContext, decode_job, encode_job
from shared.runtime.settings import Settings
from shared.tracing import ENDPOINTS, NO_TRACING, Tracing, TracingUnavailable, start_tracing
from shared.tracing.attempt import Attempt, record_attempt
from tests.support.eventually import PATIENCE
from tests.support.fleet import free_port
from tests.support.recorded_spans import TRACE, RecordedSpans


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
    record_attempt(unreachable, TraceContext(header, "="), attempt(2, links_previous=True))


def attempt(number: int = 1, **fields: Any) -> Attempt:
    defaults: dict[str, Any] = {
        "job": "a",
        "claimed_at": 1.0,
        "ended_at": 9.0,
        "outcome": "stop",
    }
    return Attempt(number=number, **defaults | fields)


def test_an_attempt_has_the_spans_of_the_phases_it_has_reached() -> None:
    def phases(**fields: Any) -> list[tuple[str, float, float, str]]:
        tracing = RecordedSpans()
        record_attempt(tracing, TRACE, attempt(failed=True, outcome="o", **fields))
        return [(span.name, span.started_at, span.ended_at, span.error) for span in tracing.spans]

    prompt, prefill = ("prompt", 1.0, 2.0, ""), ("prefill", 2.0, 3.0, "")
    assert phases() == [("prompt", 1.0, 9.0, "o")]
    assert phases(added_at=2.0) == [prompt, ("prefill", 2.0, 9.0, "o")]
    assert phases(added_at=2.0, first_output_at=3.0) == [prompt, prefill, ("decode", 3.0, 9.0, "o")]


def test_an_attempt_has_a_link_to_the_one_before() -> None:
    tracing = RecordedSpans()
    record_attempt(tracing, TRACE, attempt())
    record_attempt(tracing, TRACE, attempt(2, added_at=2.0, first_output_at=3.0, links_previous=True))
    first, second, *others = tracing.spans
    assert second.link is not None
    assert second.link.traceparent == TRACE.traceparent.replace("b7ad6b7169203331", first.span_id)
    assert [(span.link, span.span_id) for span in others] == [(None, "")] * 2
    assert first.link is None


def replayed(*events: tuple[int, Any]) -> RecordedSpans:
    """The spans that the API records for a job with these events, each with its attempt."""
    stream, usage, tracing = ResponseStream(["a"], "m"), UsageRecorder(), RecordedSpans()
    usage.queued = time.monotonic()
    for number, event in events:
        stream.choices[0].last_token = time.monotonic()
        stream.choices[0].push(number, event)
        if isinstance(event, Started):
            usage.started(0, event)
    chat_span.record_jobs(tracing, TRACE, stream, usage)
    return tracing


def test_the_api_records_the_attempts_of_lost_workers_only() -> None:
    def second(cause: str) -> list[tuple[str, object]]:
        tracing = replayed(
            (1, Started("w1", 3, "f", attempt=1)),
            (1, Delta(0, (7, 8), "xy")),
            (2, Started("w2", 3, "f", attempt=2, cause=cause)),
            (2, Finished(2, "stop")),
        )
        return [(span.name, span.attributes.get("vinoqueue.worker")) for span in tracing.spans]

    lost = [("prompt", "w1"), ("prefill", "w1"), ("decode", "w1")]
    assert second("worker_lost") == [("queue", None), *lost, ("queue", None)]
    assert second("worker_draining") == [("queue", None), ("queue", None)]


def test_an_attempt_that_was_lost_before_its_start_is_a_longer_wait() -> None:
    tracing = replayed((3, Started("w3", 3, "f", attempt=3, cause="worker_lost")), (3, Finished(0, "stop")))
    (span,) = tracing.spans
    assert (span.name, span.attributes["vinoqueue.attempt"]) == ("queue", 3)


def test_a_request_that_never_started_has_waited_all_the_time() -> None:
    tracing = replayed((1, Failed(Problem(kind=ProblemKind.QUEUE_TIMEOUT, message=""))))
    assert [span.name for span in tracing.spans] == ["queue"]
