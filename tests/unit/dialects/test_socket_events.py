"""Events of the Responses API over a WebSocket, and what a connection remembers."""

import json
from typing import Any

import pytest

from api.dialects.responses import Responses
from api.dialects.responses.socket_events import error_message, lifetime_over, messages, parse_create
from api.responses.connection_memory import ConnectionMemories, ConnectionMemory
from shared.protocol.errors import Problem, ProblemKind, RequestRefused

CREATE: dict[str, Any] = {"type": "response.create", "model": "m", "input": "hello"}


def test_the_event_is_a_body_and_a_stream() -> None:
    create = parse_create(CREATE | {"store": False, "background": False, "stream": True})
    assert create.generate
    assert create.draft.body.stream is True
    assert create.draft.store is False
    assert not parse_create(CREATE | {"generate": False}).generate


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"type": None}, "type"),
        ({"type": "response.steer"}, "type"),
        ({"type": ["a"]}, "type"),
        ({"generate": 1.5}, "generate"),
        ({"stream": False}, "stream"),
        ({"stream": "no"}, "stream"),
        ({"background": True}, "background"),
        ({"stream_id": "a"}, "stream_id"),
        ({"top_k": 1}, None),
    ],
)
def test_what_is_refused_names_its_field(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_create(CREATE | fields)
    assert refused.value.problem.param in (param, "top_k")


def test_each_event_of_a_stream_is_a_message() -> None:
    piece = b'event: a\ndata: {"text":"data: \\n\\n"}\n\nevent: b\ndata: {}\n\n'
    assert [json.loads(message) for message in messages(piece)] == [{"text": "data: \n\n"}, {}]
    assert list(messages(b"")) == []


def test_errors_have_a_code_and_the_headers_of_http() -> None:
    problem = Problem(kind=ProblemKind.QUEUE_FULL, message="Full.", retry_after=2.0)
    event = json.loads(error_message(Responses().error(problem), {"x-ratelimit-limit-requests": "1"}))
    assert (event["type"], event["status"], event["error"]["code"]) == ("error", 429, "rate_limit_exceeded")
    assert event["headers"]["x-ratelimit-limit-requests"] == "1"
    assert "retry-after" in event["headers"]
    plain = json.loads(error_message(Responses().error(Problem(kind=ProblemKind.INVALID, message="Bad.")), {}))
    assert plain["error"]["code"] == "invalid_request_error"
    old = json.loads(error_message(Responses().error(lifetime_over(60)), {}))
    assert old["error"]["code"] == "websocket_connection_limit_reached"


def test_a_connection_remembers_one_conversation() -> None:
    memory = ConnectionMemory(100, ConnectionMemories(1000))
    assert memory.history(None) is None
    memory.keep("resp_1", [{"id": "msg_1", "text": "a"}, {"text": "b"}])
    history = memory.history("resp_1")
    assert history is not None
    assert [item["text"] for item in history.earlier] == ["a", "b"]
    assert history.referenced["msg_1"]["text"] == "a"
    memory.evict("resp_2")
    assert memory.history("resp_1") is not None
    memory.keep("resp_2", [{"text": "a" * 100}])
    assert memory.history("resp_1") is memory.history("resp_2") is None
    memory.keep("resp_3", [])
    memory.evict("resp_3")
    assert memory.history("resp_3") is None


def test_connections_together_remember_a_bounded_number_of_bytes() -> None:
    memories = ConnectionMemories(250)
    opened = [ConnectionMemory(100, memories) for _ in range(4)]
    for number, memory in enumerate(opened):
        memory.keep(f"resp_{number}", [{"text": "a" * 60}])
    assert [memory.history(f"resp_{number}") is None for number, memory in enumerate(opened)] == [1, 0, 0, 0]
    opened[1].keep("resp_1", [{"text": "b" * 60}])  # Now the newest.
    with opened[2]:  # Its connection ends.
        pass
    for _ in range(3):
        opened[0].keep("resp_0", [{"text": "c" * 60}])
    assert [memory.history(f"resp_{number}") is None for number, memory in enumerate(opened)] == [0, 0, 1, 0]
