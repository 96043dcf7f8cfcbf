"""Ollama's API with its official Python client, LangChain's ChatOllama, and requests as its examples send them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ollama
import pytest

from api.dialects.ollama import VERSION
from tests.support.fleet import Fleet

if TYPE_CHECKING:
    from langchain_ollama import ChatOllama

CALL = '[[say <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>]]'
HELLO = [{"role": "user", "content": "Hello"}]
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOL: Any = {"type": "function", "function": FUNCTION}


@pytest.fixture
def client(session_fleet: Fleet) -> Iterator[ollama.Client]:
    with ollama.Client(f"http://127.0.0.1:{session_fleet.port}") as client:
        yield client


@contextmanager
def chat_ollama(fleet: Fleet, **fields: Any) -> Iterator["ChatOllama"]:
    from langchain_ollama import ChatOllama

    chat = ChatOllama(model="sim", base_url=f"http://127.0.0.1:{fleet.port}", **fields)
    assert chat._client is not None
    with chat._client:
        yield chat


def sent(fleet: Fleet, path: str, body: dict[str, Any], **headers: str) -> tuple[int, Any, list[Any]]:
    """Send a body as curl does; return the status, the headers and the lines of the answer."""
    form = {"content-type": "application/x-www-form-urlencoded"} | headers
    status, found, answer = fleet.request("POST", path, json.dumps(body), form)
    return status, found, [json.loads(line) for line in answer.splitlines()]


def test_the_official_client(client: ollama.Client) -> None:
    whole = client.chat("sim", HELLO, options={"num_predict": 5})
    pieces = [*client.chat("sim:latest", HELLO, options={"num_predict": 5}, stream=True)]
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content != ""
    for last in (whole, pieces[-1]):
        assert (last.done, last.done_reason, last.eval_count) == (True, "length", 5)
        assert last.total_duration
        assert last.prompt_eval_count
    assert [piece.done for piece in pieces[:-1]] == [False] * (len(pieces) - 1)
    assert client.generate("sim", "Hello", options={"num_predict": 5}).response == whole.message.content
    called = client.chat("sim", [{"role": "user", "content": CALL}], tools=[TOOL])
    streamed = client.chat("sim", [{"role": "user", "content": CALL}], tools=[TOOL], stream=True)
    for answer in ([called], streamed):
        calls = [call.function for piece in answer for call in piece.message.tool_calls or ()]
        assert [(call.name, call.arguments) for call in calls] == [("weather", {"city": "Rome"})]


def test_models(client: ollama.Client) -> None:
    assert [model.model for model in client.list().models] == [model.model for model in client.ps().models] == ["sim"]
    assert "completion" in (client.show("sim:latest").capabilities or ())
    with pytest.raises(ollama.ResponseError, match="The model `other` does not exist") as missing:
        client.chat("other", HELLO)
    assert missing.value.status_code == 404
    for refused in (client.pull, client.push, client.delete, lambda name: client.copy(name, "b")):
        with pytest.raises(ollama.ResponseError, match=r"/api/(pull|push|delete|copy)\): models are added"):
            refused("sim")


def test_chat_ollama(session_fleet: Fleet) -> None:
    from langchain_core.messages import AIMessage

    with chat_ollama(session_fleet, num_ctx=4096, num_predict=5) as chat:
        answer = chat.invoke("Hello")
        assert answer.content == "".join(str(piece.content) for piece in chat.stream("Hello")) != ""
    assert answer.response_metadata["done_reason"] == "length"
    assert isinstance(answer, AIMessage)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 5
    with chat_ollama(session_fleet) as chat:
        called = chat.bind_tools([TOOL]).invoke(CALL)
    assert isinstance(called, AIMessage)
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("weather", {"city": "Rome"})]


def test_requests_as_curl_sends_them(session_fleet: Fleet) -> None:
    body = {"model": "sim", "prompt": "Hello", "keep_alive": "5m", "options": {"num_predict": 2}}
    status, headers, lines = sent(session_fleet, "/api/generate", body)
    assert (status, headers["content-type"]) == (200, "application/x-ndjson; charset=utf-8")
    assert headers["x-ignored-fields"] == "keep_alive"
    assert [line["done"] for line in lines] == [*[False] * (len(lines) - 1), True]
    assert json.loads(session_fleet.request("GET", "/api/version")[2]) == {"version": VERSION}
    # A web page could send this body without asking first.
    status, _, (refused,) = sent(session_fleet, "/api/generate", body, origin="https://example.org")
    assert (status, refused) == (403, {"error": "Web pages of other sites can't use this API."})
    # Comments would be no JSON.
    assert sent(session_fleet, "/api/generate", body, **{"x-queue-events": "true"})[2][-1]["done"]
