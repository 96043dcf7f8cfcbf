"""The model server's routes over real HTTP, with a simulated engine."""

import json
from typing import Any

from tests.support.fleet import Fleet

HELLO = [{"role": "user", "content": "hello"}]
SAY = [{"role": "user", "content": "[[say one two three]]"}]


def post(fleet: Fleet, **fields: Any) -> tuple[int, dict[str, Any]]:
    raw = json.dumps({"model": "sim", "messages": HELLO} | fields)
    status, _, answer = fleet.request("POST", "/v3/chat/completions", raw)
    return status, json.loads(answer)


def stream(fleet: Fleet, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream, its terminator checked and taken off."""
    raw = json.dumps({"model": "sim", "messages": HELLO, "stream": True} | fields)
    status, headers, answer = fleet.request("POST", "/v3/chat/completions", raw)
    assert status == 200, answer
    assert headers["content-type"].startswith("text/event-stream")
    *events, done, nothing = answer.decode().split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


def test_a_streamed_answer_equals_the_whole_one(session_fleet: Fleet) -> None:
    status, whole = post(session_fleet, max_tokens=10)
    assert status == 200
    events = stream(session_fleet, max_tokens=10, stream_options={"include_usage": True})
    assert text_of(events) == whole["choices"][0]["message"]["content"]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert events[-1]["usage"] == whole["usage"]
    assert set(whole) == {"choices", "created", "id", "model", "object", "usage"}
    assert len({event["id"] for event in events}) == 1


def test_a_stop_string_is_shown_in_streams_and_where_asked_for(session_fleet: Fleet) -> None:
    def answer_to(**fields: Any) -> str:
        text: str = post(session_fleet, messages=SAY, stop="two", **fields)[1]["choices"][0]["message"]["content"]
        return text

    assert answer_to() == "one "
    assert answer_to(include_stop_str_in_output=True) == "one two"
    assert text_of(stream(session_fleet, messages=SAY, stop="two")) == "one two"


def test_openais_sdk_speaks_it_with_extra_fields(session_fleet: Fleet) -> None:
    client = session_fleet.client("v3")
    answer = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "hello"}], max_tokens=5, extra_body={"top_k": 1}
    )
    assert answer.choices[0].message.content
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("sim").id == "sim"


def test_plain_completions_are_served_too(session_fleet: Fleet) -> None:
    body = {"model": "sim", "prompt": "[[say one two three]]", "logprobs": 1}
    status, _, raw = session_fleet.request("POST", "/v3/completions", json.dumps(body))
    assert status == 200, raw
    whole = json.loads(raw)
    (choice,) = whole["choices"]
    assert choice["text"] == "one two three"
    assert "".join(choice["logprobs"]["tokens"]) == "one two three"
    assert set(whole) == {"id", "object", "created", "model", "choices", "usage"}
    status, _, raw = session_fleet.request(
        "POST", "/v3/completions", json.dumps(body | {"stream": True, "stop": "two"})
    )
    events = [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]
    assert "".join(event["choices"][0]["text"] for event in events) == "one two"
    assert raw.endswith(b"data: [DONE]\n\n")


def test_special_tokens_are_kept_on_request(session_fleet: Fleet) -> None:
    said = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"[[say {said}]]"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    message = post(session_fleet, **fields)[1]["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    raw = post(session_fleet, **fields, skip_special_tokens=False)[1]["choices"][0]["message"]
    assert raw["content"] == said
    assert "tool_calls" not in raw
