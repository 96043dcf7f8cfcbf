"""The chat route over real HTTP, with a simulated engine: what comes back, and what bad input gets."""

import json
import threading

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.fleet import Fleet

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


def post(fleet: Fleet, body: object, **headers: str) -> tuple[int, dict[str, str], dict[str, object]]:
    raw = body if isinstance(body, str | bytes) else json.dumps(body)
    status, answer_headers, answer = fleet.request(
        "POST", "/v1/chat/completions", raw, {"content-type": "application/json", **headers}
    )
    return status, answer_headers, json.loads(answer)


def test_a_streamed_answer_equals_the_whole_one(session_fleet: Fleet) -> None:
    client = session_fleet.client()
    whole = client.chat.completions.create(model="sim", messages=HELLO, max_tokens=20)
    chunks = list(
        client.chat.completions.create(
            model="sim", messages=HELLO, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 20
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]


def test_many_at_once_each_get_their_own_answer(session_fleet: Fleet) -> None:
    client = session_fleet.client()

    def ask(number: int) -> str:
        answer = client.chat.completions.create(
            model="sim", messages=[{"role": "user", "content": f"question {number}"}], max_tokens=30
        )
        return answer.choices[0].message.content or ""

    alone = [ask(number) for number in range(24)]
    together = [""] * 24
    threads = [
        threading.Thread(target=lambda number=number: together.__setitem__(number, ask(number))) for number in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    assert len(set(alone)) == 24


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ("{not json", 400, None, None),
        ({"model": "sim", "messages": HELLO, "temperature": 9}, 400, "temperature", "decimal_above_max_value"),
        ({"model": "sim", "messages": HELLO, "logit_bias": {"1": 5}}, 400, "logit_bias", "unsupported_parameter"),
        ({"model": "unknown", "messages": HELLO}, 404, None, "model_not_found"),
        ({"model": "sim", "messages": [{"role": "user", "content": "word " * 60_000}]}, 400, "messages",
         "context_length_exceeded"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input_is_refused_by_name_and_harms_nobody(
    session_fleet: Fleet, body: object, status: int, param: str | None, code: str | None, stream: bool
) -> None:
    if stream and isinstance(body, dict):
        body = {**body, "stream": True}
    found, headers, answer = post(session_fleet, body)
    error = answer["error"]
    assert isinstance(error, dict)
    assert sorted(error) == ["code", "message", "param", "type"]
    assert (found, error["param"], error["code"]) == (status, param, code), error
    assert headers["content-type"] == "application/json"
    assert headers["x-request-id"]
    assert post(session_fleet, {"model": "sim", "messages": HELLO, "max_tokens": 2})[0] == 200


def test_a_body_that_is_too_large_is_refused(session_fleet: Fleet) -> None:
    body = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "x" * 10 * 2**20}]})
    status, _, answer = post(session_fleet, body)
    assert status == 413
    assert "bytes" in str(answer["error"])
    assert post(session_fleet, {"model": "sim", "messages": HELLO, "max_tokens": 2})[0] == 200


def test_the_clients_own_request_id_is_kept_if_sane(session_fleet: Fleet) -> None:
    body = {"model": "sim", "messages": HELLO, "max_tokens": 1}
    assert post(session_fleet, body, **{"x-request-id": "my-id.1"})[1]["x-request-id"] == "my-id.1"
    assert post(session_fleet, body, **{"x-request-id": "no spaces"})[1]["x-request-id"].startswith("req_")
    assert post(session_fleet, body, **{"x-request-id": "x" * 500})[1]["x-request-id"].startswith("req_")
    assert int(post(session_fleet, body)[1]["openai-processing-ms"]) >= 0


def test_models_are_listed_and_described(session_fleet: Fleet) -> None:
    client = session_fleet.client()
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("sim").owned_by == "vinoqueue"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("org/none")
    assert missing.value.code == "model_not_found"


def test_unknown_routes_and_methods_get_errors_in_the_dialects_form(session_fleet: Fleet) -> None:
    status, _, body = session_fleet.request("GET", "/v1/nothing")
    assert (status, json.loads(body)["error"]["type"]) == (404, "invalid_request_error")
    status, headers, body = session_fleet.request("PUT", "/v1/chat/completions")
    assert (status, json.loads(body)["error"]["type"]) == (405, "invalid_request_error")
    assert "POST" in headers["allow"]


def test_probes_metrics_and_description(session_fleet: Fleet) -> None:
    session_fleet.until(lambda: session_fleet.status("/ready") == 200, "readiness")
    assert [session_fleet.status(path) for path in ("/live", "/ready", "/health")] == [200, 200, 200]
    document = json.loads(session_fleet.request("GET", "/openapi.json")[2])
    assert "/v1/chat/completions" in document["paths"]
    post(session_fleet, {"model": "sim", "messages": HELLO, "max_tokens": 3})
    page = session_fleet.request("GET", "/metrics")[2].decode()
    assert 'vinoqueue_requests_total{model="sim",outcome="length"}' in page
    assert "vinoqueue_worker_slots{" in page
    for name in ("queue_wait", "prompt", "prefill", "inter_token_latency"):
        assert f'vinoqueue_{name}_seconds_count{{model="sim"}}' in page


def test_an_engine_that_refuses_gives_an_error_before_the_stream(session_fleet: Fleet) -> None:
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[refuse]]"}], "stream": True}
    status, _, answer = post(session_fleet, body)
    assert status == 400, answer


def test_a_failure_in_mid_stream_is_an_error_event_and_the_end(session_fleet: Fleet) -> None:
    body = {"model": "sim", "messages": [{"role": "user", "content": "[[exhaust at 5]]"}], "stream": True}
    status, _, raw = session_fleet.request("POST", "/v1/chat/completions", json.dumps(body))
    events = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    assert status == 200
    assert events[-1] == "[DONE]"
    assert set(json.loads(events[-2])) == {"error"}
    stream = session_fleet.client().chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "[[exhaust at 5]]"}], stream=True
    )
    with pytest.raises(openai.APIError):
        list(stream)
