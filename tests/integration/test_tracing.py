"""What a collector gets: the spans of requests, from the client's header to the workers."""

import json
import re
import secrets
import signal
from collections.abc import Iterator
from functools import partial
from itertools import islice

import pytest

from tests.support.batches import chat_line, ended, submit
from tests.support.eventually import wait_until
from tests.support.fleet import SIMULATED, Fleet, fleet
from tests.support.traces import Collector, ReceivedSpan, collector, tree

BODY = {"model": "sim", "messages": [{"role": "user", "content": "a secret prompt"}], "max_tokens": 5}
TOKENS = 256
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, traces: Collector) -> Iterator[Fleet]:
    """An API replica and a slow worker, which export their spans at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with fleet(tmp_path_factory.mktemp("traced")) as running:
            running.worker(*SIMULATED[:-1], "0.02", "--worker-id", "worker-1")
            running.api()
            yield running


def new_trace(flags: str = "01") -> tuple[str, dict[str, str]]:
    """An id of a trace, and the headers of a client's request in it."""
    trace = secrets.token_hex(16)
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-{flags}", "tracestate": "vendor=value"}
    return trace, headers | {"content-type": "application/json"}


def post(fleet: Fleet, body: object, headers: dict[str, str], path: str = PATH) -> int:
    return fleet.request("POST", path, json.dumps(body), headers)[0]


def spans_of(fleet: Fleet, traces: Collector, trace: str, count: int) -> list[ReceivedSpan]:
    found = partial(traces.trace, trace)
    wait_until(lambda: len(found()) >= count, f"{count} spans", details=lambda: f"{tree(found())}\n{fleet.logs()}")
    return found()


def named(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = (span for span in spans if span.name == name)
    return found


def test_the_spans_of_a_request(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    body = BODY | {"temperature": 0.5, "stream": True, "n": 1}
    assert post(traced, body, headers | {"x-request-id": "mine"}) == 200
    spans = spans_of(traced, traces, trace, 2)
    server, attempt = spans
    assert (server.name, attempt.name) == ("POST /v1/chat/completions", "attempt")
    assert (server.kind, server.parent, server.state) == ("SERVER", "00f067aa0ba902b7", "vendor=value")
    assert attempt.parent == server.id
    assert not any(span.error for span in spans)
    job = attempt.attributes["vinoqueue.job"]
    first_chunk, response = (server.attributes.pop(f"gen_ai.response.{name}") for name in ("time_to_first_chunk", "id"))
    assert 0 < first_chunk < server.ended - server.began
    assert re.fullmatch("[0-9a-f]{32}", response)
    assert server.attributes == {
        "http.request.method": "POST",
        "http.route": PATH,
        "http.response.status_code": 200,
        "url.path": PATH,
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": traced.port,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vinoqueue",
        "gen_ai.request.model": "sim",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.model": "sim",
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": attempt.attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 5,
        "vinoqueue.request": "mine",
        "vinoqueue.outcome": "length",
    }
    assert attempt.attributes == {
        "gen_ai.usage.input_tokens": server.attributes["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 5,
        "vinoqueue.job": job,
        "vinoqueue.attempt": 1,
        "vinoqueue.outcome": "length",
    }
    claim = {"vinoqueue.job": job, "vinoqueue.attempt": 1, "vinoqueue.worker": "worker-1"}
    assert [(name, attributes) for name, _, attributes in server.events] == [
        ("queued", {}),
        ("claimed", claim),
        ("first token", {}),
    ]
    assert [name for name, *_ in attempt.events] == ["prompt ready", "first token"]
    for span in spans:
        times = [span.began, *(at for _, at, _ in span.events), span.ended]
        assert times == sorted(times)
    assert server.resource["service.name"] == "vinoqueue-api"
    assert (attempt.resource["service.name"], attempt.process) == ("vinoqueue-worker", "worker-1")
    for span in spans:
        assert {"service.version", "host.name", "telemetry.sdk.name"} <= span.resource.keys()
        assert span.resource["deployment.environment.name"] == "test"
    assert "secret" not in str(spans)


def test_each_choice_has_its_span(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    assert post(traced, BODY | {"n": 2}, headers) == 200
    server, *attempts = spans_of(traced, traces, trace, 3)
    assert server.attributes["gen_ai.request.choice.count"] == 2
    jobs = sorted(span.attributes["vinoqueue.job"] for span in attempts)
    assert [job.partition(":")[2] for job in jobs] == ["0", "1"]
    claims = [attributes for name, _, attributes in server.events if name == "claimed"]
    assert sorted(claim["vinoqueue.job"] for claim in claims) == jobs


def test_refusals(traced: Fleet, traces: Collector) -> None:
    """Only those that are the server's fault are errors."""
    for body, status, outcome in (
        (BODY | {"temperature": "hot"}, 400, "invalid_request"),
        (BODY | {"model": "another"}, 404, "model_not_found"),
        (BODY | {"max_tokens": 5, "model": "sim", "messages": []}, 400, "invalid_request"),
    ):
        trace, headers = new_trace()
        assert post(traced, body, headers) == status
        (span,) = spans_of(traced, traces, trace, 1)
        assert (span.name, span.error) == (f"POST {PATH}", False)
        found = (span.attributes["http.response.status_code"], span.attributes["vinoqueue.outcome"])
        assert found == (status, outcome)
        assert "error.type" not in span.attributes
    trace, headers = new_trace()
    assert post(traced, BODY | {"model": "m" * 2000}, headers) == 404
    (span,) = spans_of(traced, traces, trace, 1)
    assert span.attributes["gen_ai.request.model"] == "m" * 1024
    trace, headers = new_trace()
    assert post(traced, BODY, headers, "/nowhere") == 404
    (span,) = spans_of(traced, traces, trace, 1)
    assert (span.name, span.attributes["url.path"]) == ("POST", "/nowhere")


def test_a_request_that_waits_in_vain_is_an_error(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    worker = next(process for process in traced.processes if process.arguments[0] == "worker")
    worker.signal(signal.SIGSTOP)
    try:
        assert post(traced, BODY, headers | {"x-queue-timeout": "0.2"}) == 503
    finally:
        worker.signal(signal.SIGCONT)
    traced.until(lambda: any(span.kind == "SERVER" for span in traces.trace(trace)), "the request's span")
    server = named(traces.trace(trace), f"POST {PATH}")
    assert [name for name, *_ in server.events] == ["queued"]
    assert (server.error, server.attributes["error.type"]) == (True, "queue_timeout")
    assert server.attributes["gen_ai.request.model"] == "sim"


def test_a_client_that_leaves(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    client = traced.client()
    stream = client.chat.completions.create(
        model="sim",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=1000,
        stream=True,
        extra_headers=headers,
    )
    next(iter(stream))
    stream.close()
    spans = spans_of(traced, traces, trace, 2)
    server = named(spans, f"POST {PATH}")
    assert (server.error, server.attributes["vinoqueue.outcome"]) == (False, "aborted")
    assert "gen_ai.response.finish_reasons" not in server.attributes
    assert named(spans, "attempt").attributes["vinoqueue.outcome"] == "cancelled"


def test_the_clients_decision_is_followed_and_a_bad_header_ignored(traced: Fleet, traces: Collector) -> None:
    unsampled, headers = new_trace("00")
    assert post(traced, BODY, headers) == 200
    forged, headers = new_trace()
    for bad in (headers["traceparent"][:-1], f"00-{'0' * 32}-00f067aa0ba902b7-01", f"ff{headers['traceparent'][2:]}"):
        known = {span.trace for span in traces.spans}
        assert post(traced, BODY, headers | {"traceparent": bad}) == 200

        def roots(known: set[str] = known) -> list[ReceivedSpan]:
            return [span for span in traces.spans if span.kind == "SERVER" and span.trace not in known]

        traced.until(roots, "a new trace")
        assert [(span.parent, span.state) for span in roots()] == [("", "")]
    assert traces.trace(unsampled) == traces.trace(forged) == []


def test_a_background_response_belongs_to_the_trace_of_its_request(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    body = {"model": "sim", "input": "hello", "background": True, "max_output_tokens": 16}
    assert post(traced, body, headers, "/v1/responses") == 200
    spans = spans_of(traced, traces, trace, 3)
    server, background = named(spans, "POST /v1/responses"), named(spans, "background response")
    assert (background.parent, background.attributes["gen_ai.usage.output_tokens"]) == (server.id, 16)
    assert {span.parent for span in spans if span not in (server, background)} == {background.id}


def test_the_span_of_a_refused_background_response_ends(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    body = {"model": "unknown", "input": "hello", "background": True}
    assert post(traced, body, headers, "/v1/responses") == 404
    background = named(spans_of(traced, traces, trace, 2), "background response")
    assert background.attributes["vinoqueue.outcome"] == "model_not_found"


def test_each_line_of_a_batch_has_a_trace(traced: Fleet, traces: Collector) -> None:
    client = traced.client()
    batch = ended(client, submit(client, [chat_line("a"), chat_line("b")]))
    assert batch.status == "completed"

    def lines() -> list[ReceivedSpan]:
        return [span for span in traces.spans if span.attributes.get("vinoqueue.batch") == batch.id]

    traced.until(lambda: len(lines()) == 2, "the lines' spans")
    assert {(line.name, line.parent, line.attributes["gen_ai.usage.output_tokens"]) for line in lines()} == {
        ("batch line", "", 8)
    }
    for line in lines():
        assert [span.name for span in spans_of(traced, traces, line.trace, 2)] == ["batch line", "attempt"]


def test_logs_and_metrics_name_the_trace(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    assert post(traced, BODY, headers) == 200
    log = next(process.log for process in traced.processes if process.arguments[0] == "api")
    traced.until(lambda: f"outcome=length trace_id={trace} " in log.read_text(), "the line")
    metrics = traced.request("GET", "/metrics", headers={"accept": "application/openmetrics-text"})[2].decode()
    assert re.search(rf'job="[0-9a-f]+",trace_id="{trace}"', metrics)


def test_a_request_whose_worker_dies_names_both_workers(traced: Fleet, traces: Collector) -> None:
    trace, headers = new_trace()
    first = next(process for process in traced.processes if process.arguments[0] == "worker")
    stream = traced.client().chat.completions.create(
        model="sim",
        messages=[{"role": "user", "content": f"[[tokens {TOKENS}]]"}],
        max_tokens=TOKENS,
        stream=True,
        extra_headers=headers,
    )
    for chunk in islice(stream, 5):
        assert chunk.choices
    first.kill()
    traced.start("worker", *SIMULATED, "--worker-id", "worker-2")
    assert [chunk.choices[0].finish_reason for chunk in stream][-1] is not None
    server, attempt = spans_of(traced, traces, trace, 2)
    assert tree([server, attempt]).count("\n  attempt") == 1
    claims = [attributes for name, _, attributes in server.events if name == "claimed"]
    assert [(claim["vinoqueue.attempt"], claim["vinoqueue.worker"]) for claim in claims] == [
        (1, "worker-1"),
        (2, "worker-2"),
    ]
    assert claims[1]["vinoqueue.cause"] == "worker_lost"
    assert (attempt.process, attempt.parent, attempt.error) == ("worker-2", server.id, False)
    counts = attempt.attributes["vinoqueue.resumed_tokens"], attempt.attributes["gen_ai.usage.output_tokens"]
    assert (sum(counts), min(counts) > 0) == (TOKENS, True)
    assert (server.error, server.attributes["gen_ai.usage.output_tokens"]) == (False, TOKENS)
