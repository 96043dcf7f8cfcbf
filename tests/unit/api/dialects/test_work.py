"""The work for a body grows no faster than the body, in every dialect: it is done in the event loop of all clients."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from api.chat.reader import ChoiceReader
from api.dialects.anthropic.render import MessagesResponseEncoder
from api.dialects.base import body
from api.dialects.base.conversation import Conversation
from api.dialects.base.encoded_reasoning import encode_reasoning
from api.dialects.base.interface import Dialect
from shared.protocol.errors import RequestRefused
from shared.protocol.events import Delta, Started
from shared.protocol.request import ChatRequest, Message, Sampling, Tool
from tests.support.answers import UsageRecorder
from tests.support.dialects import DIALECTS, Tried
from tests.support.jobs import request_of
from tests.support.operations import CountedText, operations, with_counted_lists

SIZE = 160
"""Number of items in the smaller of two bodies. In the larger one, a search for each item in a list of all items would
be most of the operations."""

Shape = Callable[[int], dict[str, Any]]

_SAID = Message(role="user", content="x")
_USER = {"role": "user", "content": "x"}
_TEXT = {"type": "text", "text": "x"}
_URL = "https://example.org/a.png"


def _names(count: int, letter: str = "p") -> list[str]:
    return [f"{letter}{index}" for index in range(count)]


def _object(properties: list[str], required: list[str]) -> dict[str, Any]:
    fields = {name: {"type": "string"} for name in properties}
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _form(schema: dict[str, Any]) -> dict[str, Any]:
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}
    return {"messages": [_USER], "response_format": form}


def _deep(width: int) -> dict[str, Any]:
    inner = _object(_names(width), _names(width))
    for _ in range(6):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}
    return inner


def _function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def _chat_calls(count: int) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function} for name in _names(count)]
    results = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in _names(count)]
    return {"messages": [_USER, {"role": "assistant", "tool_calls": calls}, *results]}


CHATS: dict[str, Shape] = {
    "properties that are not required": lambda n: _form(_object(_names(n), _names(n, "q"))),
    "properties that are required": lambda n: _form(_object(_names(n), _names(n)[::-1])),
    "long enum": lambda n: _form(_object(["a"], ["a"]) | {"properties": {"a": {"enum": _names(n)}}}),
    "deep schema": lambda n: _form(_deep(n)),
    "messages": lambda n: {"messages": [_USER] * n},
    "parts": lambda n: {"messages": [{"role": "user", "content": [_TEXT] * n}]},
    "messages of parts": lambda n: {"messages": [{"role": "user", "content": [_TEXT] * 8}] * n},
    "images": lambda n: {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": _URL}}] * n}]
    },
    "tool calls": _chat_calls,
    "tools": lambda n: {"messages": [_USER], "tools": [_function(name) for name in _names(n // 4)]},
    "allowed tools": lambda n: {
        "messages": [_USER],
        "tools": [_function(name) for name in _names(n // 4)],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": name}} for name in _names(n // 4)] * 4,
            },
        },
    },
    "unknown fields": lambda n: {"messages": [_USER]} | dict.fromkeys(_names(n), 1),
    "unknown fields of a message": lambda n: {"messages": [_USER | dict.fromkeys(_names(n), 1)]},
    "wrong biases": lambda n: {"messages": [_USER], "logit_bias": dict.fromkeys(_names(n), "x")},
    "metadata": lambda n: {"messages": [_USER], "store": True, "metadata": dict.fromkeys(_names(n), "x")},
    "choices": lambda n: {"messages": [_USER], "structured_outputs": {"choice": _names(n)}},
}


def _tool_use(name: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": "p0", "input": {}}]}


def _result(name: str, content: object = "x") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": content}]}


def _references(count: int) -> dict[str, Any]:
    tools = [
        {"name": name, "defer_loading": name != "p0", "input_schema": {"type": "object"}} for name in _names(count)
    ]
    references = [{"type": "tool_reference", "tool_name": name} for name in _names(count)]
    return {"messages": [_USER, _tool_use("c"), _result("c", references)], "tools": tools}


_IMAGE = {"type": "image", "source": {"type": "url", "url": _URL}}
MESSAGES: dict[str, Shape] = {
    "messages": lambda n: {"messages": [_USER] * n},
    "images": lambda n: {"messages": [{"role": "user", "content": [_IMAGE, _TEXT]}] * n},
    "turns of the assistant": lambda n: {"messages": [{"role": "assistant", "content": "x"}] * n + [_USER]},
    "calls": lambda n: {"messages": [_USER, *map(_tool_use, _names(n)), *map(_result, _names(n))]},
    "blocks": lambda n: {"messages": [{"role": "user", "content": [_TEXT] * n}]},
    "instructions": lambda n: {"messages": [_USER] * n, "system": [_TEXT] * n},
    "cleared instructions": lambda n: {
        "messages": [{"role": "system", "content": "x", "clear_at": "next_user_message"}] * n + [_USER]
    },
    "references": _references,
    "edits": lambda n: {"messages": [_USER], "context_management": {"edits": [{"type": name} for name in _names(n)]}},
}


def _item(kind: str, count: int, **fields: object) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [{"type": kind} | fields] * count}]}


def _response_calls(count: int) -> dict[str, Any]:
    calls = [{"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"} for name in _names(count)]
    results = [{"type": "function_call_output", "call_id": name, "output": "x"} for name in _names(count)]
    return {"input": [*calls, *results]}


def _response_tools(count: int, **fields: object) -> list[dict[str, Any]]:
    return [{"type": "function", "name": name, "parameters": {"type": "object"}} | fields for name in _names(count)]


RESPONSES: dict[str, Shape] = {
    "items": lambda n: {"input": [_USER] * n},
    "parts": partial(_item, "input_text", text="x"),
    "images": partial(_item, "input_image", image_url=_URL),
    "calls": _response_calls,
    "references": lambda n: {"input": [{"type": "item_reference", "id": name} for name in _names(n)]},
    "reasoning": lambda n: {
        "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}] * n}, _USER]
    },
    "properties that are not required": lambda n: {
        "input": "x",
        "tools": _response_tools(1, strict=True, parameters=_object(_names(n), _names(n, "q"))),
    },
    "tools of a namespace": lambda n: {
        "input": "x",
        "tools": [{"type": "namespace", "name": "ns", "description": "x", "tools": _response_tools(n)}],
    },
    "allowed tools": lambda n: {
        "input": "x",
        "tools": _response_tools(n // 4),
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": _response_tools(n)},
    },
}

PROMPTS: dict[str, Shape] = {
    "tokens": lambda n: {"prompt": list(range(n))},
    "prompts": lambda n: {"prompt": _names(n)},
    "prompts of tokens": lambda n: {"prompt": [[1] * 8] * n},
    "prompts of several types": lambda n: {"prompt": ["x", *[1] * n]},
    "biases": lambda n: {"prompt": "x", "logit_bias": dict.fromkeys(map(str, range(n)), 1)},
}


def _ollama_calls(count: int, *, named: bool) -> dict[str, Any]:
    calls = [{"function": {"name": name, "arguments": {}}} for name in _names(count)]
    results = [{"role": "tool", "content": "x"} | ({"tool_name": name} if named else {}) for name in _names(count)]
    return {"messages": [_USER, {"role": "assistant", "tool_calls": calls}, *results[::-1]]}


SHAPES: dict[str, dict[str, Shape]] = {
    "chat": CHATS,
    "azure": CHATS,
    "ovms_chat": CHATS,
    "anthropic": MESSAGES,
    "responses": RESPONSES,
    "ovms_responses": RESPONSES,
    "ollama_chat": {
        "messages": CHATS["messages"],
        "images": lambda n: {"messages": [_USER | {"images": ["AAAA"] * n}]},
        "results": partial(_ollama_calls, named=False),
        "results with names": partial(_ollama_calls, named=True),
        "tools": CHATS["tools"],
        "unknown options": lambda n: {"options": dict.fromkeys(_names(n), 1)},
        "long enum": lambda n: {"format": {"enum": _names(n)}},
    },
    "ollama_generate": {"images": lambda n: {"images": ["AAAA"] * n}},
    "completions": PROMPTS,
    "ovms_completions": PROMPTS,
}


def _parse(dialect: Dialect, raw: bytes) -> None:
    try:
        dialect.parse(raw)
    except RequestRefused as refusal:
        dialect.error(refusal.problem)


@pytest.mark.parametrize(
    ("tried", "shape"),
    [
        pytest.param(tried, shape, id=f"{name}-{about}")
        for name, tried in DIALECTS.items()
        for about, shape in SHAPES[name].items()
    ],
)
def test_twice_the_body_is_at_most_twice_the_work(tried: Tried, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_parse", lambda text: with_counted_lists(json.loads(text)))
    extras = {**tried.known.headers, "extra-parameters": "pass-through"}
    small, large = (json.dumps(tried.body("") | shape(size)).encode() for size in (SIZE, 2 * SIZE))
    _parse(tried.make(headers=extras), small)  # Fills the caches.
    once, twice = (operations(partial(_parse, tried.make(headers=extras), raw)) for raw in (small, large))
    assert twice < 2.2 * once


def test_turns_are_joined_in_one_pass() -> None:
    def join(size: int) -> None:
        conversation = Conversation(joined=["user"])
        for _ in range(size):
            conversation.user([CountedText("x")])
        assert len(conversation.finish()) == 1

    once, twice = (operations(partial(join, size)) for size in (SIZE, 2 * SIZE))
    assert twice < 2.2 * once


def test_hidden_reasoning_is_joined_once() -> None:
    def write(size: int) -> None:
        encoder = MessagesResponseEncoder(request_of(hidden="reasoning"), response_id="a")
        for _ in range(size):
            encoder.reasoning(0, CountedText("x"))
        assert encode_reasoning("x" * size).encode() in encoder.closing(0, "stop")

    once, twice = (operations(partial(write, size)) for size in (SIZE, 2 * SIZE))
    assert twice < 2.2 * once


def test_log_probabilities_wait_for_text_without_being_moved_again() -> None:
    """A tool call has none, so those of its tokens wait until it ends."""
    call = '{"name":"f","arguments":{"a":"' + "x" * 2 * SIZE

    def read(size: int) -> None:
        asked = ChatRequest(model="m", messages=(_SAID,), tools=(Tool(name="f"),), sampling=Sampling(logprobs=True))
        reader = ChoiceReader(asked, Started("w", 1, "f", tools="hermes"), UsageRecorder())
        for at, letter in enumerate(f"<tool_call>{call}"[:size]):
            reader.read(Delta(at, (1,), letter, (-1.0,), (letter.encode(),)))

    once, twice = (operations(partial(read, size)) for size in (SIZE, 2 * SIZE))
    assert twice < 2.2 * once
