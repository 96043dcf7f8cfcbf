"""Messages and streams of Anthropic's dialect."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from api.dialects.anthropic import Anthropic
from api.dialects.anthropic.render import MessagesResponseEncoder
from api.dialects.base.interface import Call, Choice, Usage
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest
from tests.support.sdk_types import anthropic_events, anthropic_types, checked

USER = {"role": "user", "content": "Hello"}
CLIENT_CALL: dict[str, Any] = {"type": "tool_use", "caller": {"type": "direct"}, "toolset_name": None}
USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
DIALECT = Anthropic({"anthropic-version": "2023-06-01"}, "req_1")


def parse(**fields: Any) -> ChatRequest:
    return DIALECT.parse(json.dumps({"model": "m", "max_tokens": 5, "messages": [USER]} | fields).encode())


def encoder(**fields: Any) -> MessagesResponseEncoder:
    return DIALECT.render(parse(**fields), response_id="a", created=1, fingerprint="fp")


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream, each checked by the SDK's types and named as its type."""
    found = []
    for event in stream.split(b"\n\n")[:-1]:
        name, data = event.split(b"\n")
        document = json.loads(data.removeprefix(b"data: "))
        assert name == f"event: {document['type']}".encode()
        if document["type"] not in ("ping", "error"):
            checked(type(anthropic_events().validate_python(document)), data.removeprefix(b"data: "))
        found.append(document)
    return found


def message(body: bytes) -> Any:
    return checked(anthropic_types().Message, body)


def test_a_stream_of_blocks() -> None:
    by = encoder(stream=True)
    stream = (
        by.opening(0, 9, 3) + by.reasoning(0, "Hm") + by.reasoning(0, ".") + by.content(0, "Hé") + by.content(0, "y")
    )
    stream += (
        by.call(0, 0, "c1", "f") + by.arguments(0, 0, '{"a":') + by.arguments(0, 0, "1}") + by.call(0, 1, "c2", "g")
    )
    stream += by.closing(0, "tool_calls") + by.usage(USAGE) + by.done
    start, ping, *blocks, delta, stop = events(stream)
    assert start["message"] == {
        "id": "msg_a",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "diagnostics": None,
        "usage": {
            "input_tokens": 6,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"thinking_tokens": 0},
            "server_tool_use": None,
            "inference_geo": None,
            "service_tier": "standard",
            "speed": "standard",
        },
    }
    assert (ping["type"], stop["type"]) == ("ping", "message_stop")
    assert [(block["type"], block["index"]) for block in blocks] == [
        (f"content_block_{part}", index)
        for index, deltas in enumerate((3, 2, 3, 1))
        for part in ("start", *["delta"] * deltas, "stop")
    ]
    assert [block["content_block"] for block in blocks if "content_block" in block] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": "", "citations": None},
        CLIENT_CALL | {"id": "c1", "name": "f", "input": {}},
        CLIENT_CALL | {"id": "c2", "name": "g", "input": {}},
    ]
    assert [block["delta"] for block in blocks if "delta" in block] == [
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "thinking_delta", "thinking": "."},
        {"type": "signature_delta", "signature": "msg_a"},
        {"type": "text_delta", "text": "Hé"},
        {"type": "text_delta", "text": "y"},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"a":'},
        {"type": "input_json_delta", "partial_json": "1}"},
        {"type": "input_json_delta", "partial_json": ""},
    ]
    assert (delta["delta"]["stop_reason"], delta["delta"]["stop_sequence"]) == ("tool_use", None)
    assert (delta["usage"]["input_tokens"], delta["usage"]["cache_read_input_tokens"]) == (6, 3)
    assert delta["usage"]["output_tokens"] == 5


def test_a_wrong_key_is_not_to_be_sent_again() -> None:
    reply = DIALECT.error(Problem(kind=ProblemKind.UNAUTHORIZED, message="Incorrect API key."))
    assert (reply.status, reply.headers["x-should-retry"]) == (401, "false")


def test_a_stream_that_fails_ends_with_an_error() -> None:
    by = encoder(stream=True)
    stream = by.opening(0) + by.content(0, "a") + by.failure(Problem(kind=ProblemKind.ENGINE_FAILED, message="why"))
    error = {"type": "api_error", "message": "why"}
    assert events(stream)[-1] == {"type": "error", "error": error, "request_id": "req_1"}


REASONS: Sequence[tuple[FinishReason, str, str]] = [
    ("stop", "", "end_turn"),
    ("stop", "END", "stop_sequence"),
    ("length", "", "max_tokens"),
    ("tool_calls", "", "tool_use"),
]


@pytest.mark.parametrize(("reason", "stop", "expected"), REASONS)
def test_stop_reason_and_stop_sequence(reason: FinishReason, stop: str, expected: str) -> None:
    by = encoder()
    whole = checked(
        anthropic_types().Message, by.completion([Choice(index=0, text="Hi", reason=reason, stop=stop)], USAGE)
    )
    assert (whole.stop_reason, whole.stop_sequence) == (expected, stop or None)
    (delta,) = events(by.closing(0, reason, stop) + by.usage(USAGE))
    assert (delta["delta"]["stop_reason"], delta["delta"]["stop_sequence"]) == (expected, stop or None)


def test_an_output_that_the_context_ends_is_marked() -> None:
    by = encoder(max_tokens=6)
    reason = "model_context_window_exceeded"
    whole = message(by.completion([Choice(index=0, text="Hi", reason="length")], USAGE))
    assert whole.stop_reason == reason
    (delta,) = events(by.closing(0, "length") + by.usage(USAGE))
    assert delta["delta"]["stop_reason"] == reason


def test_reasoning_that_is_omitted_is_in_its_signature() -> None:
    request = parse(thinking={"type": "adaptive", "display": "omitted"}, stream=True)
    by = DIALECT.render(request, response_id="a", created=1, fingerprint="")
    stream = by.opening(0) + by.reasoning(0, "Hm") + by.reasoning(0, ".") + by.content(0, "Hey")
    stream += by.closing(0, "stop") + by.usage(USAGE) + by.done
    found = events(stream)
    assert found[2]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert [event["delta"]["type"] for event in found if event["type"] == "content_block_delta"] == [
        "signature_delta",
        "text_delta",
    ]
    whole = checked(
        anthropic_types().Message, by.completion([Choice(index=0, text="Hey", reason="stop", reasoning="Hm.")], USAGE)
    )
    block = whole.content[0].model_dump(exclude_unset=True)
    assert block == {"type": "thinking", "thinking": "", "signature": found[3]["delta"]["signature"]}
    foreign = {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"}
    assert parse(messages=[{"role": "assistant", "content": [block, foreign]}, USER]).messages[0].reasoning == "Hm."


def test_no_tokens_fill_the_prefix_cache_only() -> None:
    request = parse(max_tokens=0)
    assert request.sampling.max_tokens == 1
    by = DIALECT.render(request, response_id="a", created=1, fingerprint="")
    choice = Choice(index=0, text="H", reason="stop", reasoning="m", calls=(Call(id="c", name="f", arguments="{}"),))
    whole = message(by.completion([choice], USAGE))
    assert (whole.content, whole.stop_reason, whole.usage.output_tokens) == ([], "max_tokens", 0)
    stream = by.opening(0, 9) + by.reasoning(0, "m") + by.content(0, "H") + by.call(0, 0, "c", "f")
    stream += by.arguments(0, 0, "{}") + by.closing(0, "stop") + by.usage(USAGE) + by.done
    assert [event["type"] for event in events(stream)] == ["message_start", "ping", "message_delta", "message_stop"]


def test_a_whole_message() -> None:
    calls = (Call(id="c1", name="f", arguments='{"a":1}'), Call(id="c2", name="g", arguments='{"a":'))
    choice = Choice(index=0, text="Hey", reason="length", reasoning="Hm.", calls=calls)
    whole = message(encoder().completion([choice], USAGE))
    assert [block.model_dump(exclude_unset=True) for block in whole.content] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "msg_a"},
        {"type": "text", "text": "Hey", "citations": None},
        CLIENT_CALL | {"id": "c1", "name": "f", "input": {"a": 1}},
        CLIENT_CALL | {"id": "c2", "name": "g", "input": {}},
    ]
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (6, 5)
